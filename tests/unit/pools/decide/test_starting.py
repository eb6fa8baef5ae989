from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.pools.decide.actions import Cause
from remuda.pools.decide.starting import next_deadline, overdue
from tests.unit.pools.builders import (
    NOW,
    OLD,
    a_pool,
    ago,
    busy,
    ended,
    starting,
    unseen,
    waiting,
    warm,
)

if TYPE_CHECKING:
    from remuda.model.runner import Runner

TIMEOUT, LOST = Cause.START_TIMEOUT, Cause.UNSCHEDULABLE


@pytest.mark.parametrize(
    ("runner", "cause"),
    [
        pytest.param(starting("a", bound_at=ago(299)), None, id="a start may use its whole time"),
        pytest.param(starting("a", bound_at=ago(300)), TIMEOUT, id="a start is over at its deadline"),
        pytest.param(
            starting("a", created_at=ago(9999), bound_at=ago(10)), None,
            id="a start is timed from its host, not from its creation",
        ),
        pytest.param(
            starting("a", bound_at=None, created_at=ago(300)), TIMEOUT,
            id="a start whose binding has no time is timed from its creation",
        ),
        pytest.param(
            starting("a", bound_at=ago(9999), unready_since=ago(10)), None,
            id="a warm runner whose host went quiet gets a whole deadline",
        ),
        pytest.param(
            starting("a", bound_at=ago(9999), unready_since=ago(300)), TIMEOUT,
            id="a host that stays quiet loses the runner",
        ),
        pytest.param(
            starting("a", bound_at=ago(10), unready_since=ago(400)), None,
            id="not ready before it was bound means nothing",
        ),
        pytest.param(
            waiting("a", unschedulable_since=ago(299)), None, id="a wait may use its whole time"
        ),
        pytest.param(waiting("a", unschedulable_since=ago(300)), LOST, id="a wait for a host ends"),
        pytest.param(waiting("a", created_at=ago(300)), LOST, id="a scheduler that never looked"),
        pytest.param(waiting("a", created_at=ago(299)), None, id="a scheduler that may still look"),
        pytest.param(starting("a", template=OLD, bound_at=ago(300)), TIMEOUT, id="a stale start too"),
        pytest.param(warm("a", bound_at=ago(9999)), None, id="a warm runner waits for ever"),
        pytest.param(busy("a", bound_at=ago(9999)), None, id="a busy runner is exempt"),
        pytest.param(ended("a", bound_at=ago(9999)), None, id="an ended runner is another's worry"),
        pytest.param(
            starting("a", bound_at=ago(9999), deleting_since=ago(1)), None,
            id="one being deleted is left to its finalizers",
        ),
        pytest.param(unseen("a", created_at=ago(9999)), None, id="one that nobody confirmed"),
    ],
)  # fmt: skip
def test_overdue(runner: Runner, cause: Cause | None) -> None:
    assert [r.cause for r in overdue(a_pool(), [runner], NOW)] == ([cause] if cause else [])


def test_deadlines_can_be_off() -> None:
    pool = a_pool(start_timeout=None)
    late = [starting("a", bound_at=ago(9999)), waiting("b", created_at=ago(9999))]

    assert overdue(pool, late, NOW) == ()
    assert next_deadline(pool, late, NOW) is None


def test_the_next_deadline_is_the_soonest() -> None:
    runners = [
        starting("a", bound_at=ago(100)),
        waiting("b", unschedulable_since=ago(250)),
        warm("c", bound_at=ago(299)),
    ]

    assert next_deadline(a_pool(), runners, NOW) == timedelta(seconds=50)


@pytest.mark.parametrize(
    ("runner", "why"),
    [
        (starting("a", bound_at=ago(300)), "it did not become warm on host-1 within 300 s"),
        (waiting("a", created_at=ago(300)), "no host took it within 300 s"),
        (
            waiting("a", unschedulable_since=ago(300), unschedulable_why="0/3 nodes are available"),
            "no host took it within 300 s: 0/3 nodes are available",
        ),
    ],
    ids=["a start", "a wait", "a wait that the scheduler explains"],
)
def test_why(runner: Runner, why: str) -> None:
    assert [reap.why for reap in overdue(a_pool(), [runner], NOW)] == [why]


@pytest.mark.parametrize(
    ("told_s", "watched_s", "late"),
    [
        pytest.param(300, 0, False, id="our clock is ahead: it began just now"),
        pytest.param(599, 299, False, id="it may use its whole time by our own watch"),
        pytest.param(300, 300, True, id="our own watch is enough"),
        pytest.param(-300, 300, True, id="also if our clock is behind"),
        pytest.param(
            599, 10, False, id="what began before we led may have begun later than it says"
        ),
        pytest.param(600, 10, True, id="but no later than clocks can differ"),
    ],
)
def test_whose_clock_counts(told_s: float, watched_s: float, late: bool) -> None:  # noqa: FBT001 - a column
    runner, watched = starting("a", bound_at=ago(told_s)), {"uid-a": timedelta(seconds=watched_s)}

    assert bool(overdue(a_pool(), [runner], NOW, watched)) is late
    left = next_deadline(a_pool(), [runner], NOW, watched)
    assert left is not None
    assert (left <= timedelta(0)) is late


def test_a_runner_that_we_see_for_the_first_time_has_all_its_time() -> None:
    assert overdue(a_pool(), [starting("a", bound_at=ago(599))], NOW, {}) == ()


def test_a_time_at_the_end_of_all_days_stops_no_pass() -> None:
    runner = starting("a", bound_at=datetime.max.replace(tzinfo=UTC))

    assert overdue(a_pool(), [runner], NOW, {"uid-a": timedelta(seconds=300)}) != ()
