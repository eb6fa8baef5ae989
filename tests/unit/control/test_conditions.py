from __future__ import annotations

from datetime import UTC, datetime, timedelta

from remuda.control.conditions import set_condition
from remuda.kube.meta import Condition

NOON = datetime(2026, 11, 15, 12, 0, 0, 750_000, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)
READY = Condition(type="Ready", status="True", reason="Warm", message="3 of 3 are warm")
ROLLING = Condition(type="Rolling", status="False", reason="Done")


def test_a_new_condition_holds_since_now_in_whole_seconds() -> None:
    (condition,) = set_condition((), READY, NOON)

    assert condition.last_transition_time == NOON.replace(microsecond=0)
    assert (condition.status, condition.reason) == ("True", "Warm")


def test_nothing_new_gives_the_very_same_tuple() -> None:
    conditions = set_condition(set_condition((), READY, NOON), ROLLING, NOON)

    assert set_condition(conditions, READY, LATER) is conditions


def test_another_reason_is_news_but_no_transition() -> None:
    before = set_condition((), READY, NOON)
    (after,) = set_condition(
        before, Condition(type="Ready", status="True", reason="Warm", message="2 of 3"), LATER
    )

    assert after.message == "2 of 3"
    assert after.last_transition_time == NOON.replace(microsecond=0)


def test_another_status_is_a_transition_and_keeps_its_place() -> None:
    before = set_condition(set_condition((), READY, NOON), ROLLING, NOON)
    after = set_condition(before, Condition(type="Ready", status="False", reason="Cold"), LATER)

    assert [c.type for c in after] == ["Ready", "Rolling"]
    assert after[0].last_transition_time == LATER.replace(microsecond=0)
    assert after[1] is before[1]


def test_a_heartbeat_is_written_in_whole_seconds() -> None:
    beating = Condition(type="Ready", status="True", last_heartbeat_time=NOON)
    (condition,) = set_condition((), beating, NOON)

    assert condition.last_heartbeat_time == NOON.replace(microsecond=0)
