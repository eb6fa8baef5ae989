"""What becomes of Pods with an owner that nothing stands behind."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from remuda.dispatch.decide.recovery import Leave
from remuda.dispatch.decide.stamped_pods import (
    Reap,
    Stamped,
    Unstamp,
    capped,
    mend_stamp,
    unexplained,
)
from tests.unit.dispatch.decide.test_pods_gone import a_session

if TYPE_CHECKING:
    from remuda.model.job import Session

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def a_stamped(name: str = "p", **changes: Any) -> Stamped:  # noqa: ANN401 - fields of what it builds
    pod = Stamped(
        name=name,
        uid=f"uid-{name}",
        version="7",
        pool="linux",
        claim="forge/1@then",
        age_s=1000.0,
    )
    return replace(pod, **changes)


@pytest.mark.parametrize(
    ("pod", "occupied", "found"),
    [
        pytest.param(a_stamped(), frozenset(), True, id="nothing behind it"),
        pytest.param(a_stamped(), {"p"}, False, id="a claim or an open session behind it"),
        pytest.param(a_stamped(ended=True), frozenset(), False, id="it ended: the operator's"),
        pytest.param(a_stamped(deleting=True), frozenset(), False, id="it is being deleted"),
    ],
)
def test_which_stamps_nothing_explains(*, pod: Stamped, occupied: set[str], found: bool) -> None:
    assert bool(unexplained([pod], occupied)) is found


CLOSED = replace(a_session(), ended_at=NOON)


@pytest.mark.parametrize(
    ("pod", "seen_s", "spent", "job_over", "kind"),
    [
        pytest.param(a_stamped(), 300, None, False, Reap, id="old, unexplained and not warm: goes"),
        pytest.param(
            a_stamped(warm=True), 300, None, False, Unstamp, id="warm and never used: serves again"
        ),
        pytest.param(a_stamped(age_s=299), 300, None, False, Leave, id="young is left"),
        pytest.param(a_stamped(age_s=None), 300, None, False, Leave, id="of unknown age is left"),
        pytest.param(a_stamped(), 299, None, False, Leave, id="not seen so for long is left"),
        pytest.param(
            a_stamped(delivered=True), 9999, None, False, Leave, id="a job reached it: never"
        ),
        pytest.param(
            a_stamped(warm=True, delivered=True),
            9999,
            None,
            False,
            Leave,
            id="a job reached it, warm as it looks: never",
        ),
        pytest.param(
            a_stamped(), 9999, CLOSED, False, Leave, id="it was handed a job that may run: never"
        ),
        pytest.param(
            a_stamped(warm=True),
            9999,
            CLOSED,
            False,
            Leave,
            id="it was handed a job, warm as it looks: never",
        ),
        pytest.param(
            a_stamped(delivered=True),
            300,
            CLOSED,
            True,
            Reap,
            id="its job is over, its session closed, and it stays: goes",
        ),
        pytest.param(
            a_stamped(delivered=True), 300, None, True, Leave, id="some other job is over: never"
        ),
        pytest.param(
            a_stamped(warm=True), 300, CLOSED, True, Reap, id="spent is not warm, it goes"
        ),
    ],
)
def test_mend_stamp(
    *, pod: Stamped, seen_s: float, spent: Session | None, job_over: bool, kind: type
) -> None:
    decided = mend_stamp(pod, seen_s, spent=spent, job_over=job_over, stamped_s=300.0)

    assert isinstance(decided, kind)


def reaps(*names: str, pool: str = "linux") -> list[Reap]:
    return [Reap(a_stamped(name, pool=pool), "test") for name in names]


@pytest.mark.parametrize(
    ("wanted", "sizes", "at_most", "chosen"),
    [
        pytest.param(reaps("a", "b"), {"linux": 8}, 25, ["a", "b"], id="within the share"),
        pytest.param(reaps("a", "b", "c"), {"linux": 8}, 25, ["a", "b"], id="a quarter at a time"),
        pytest.param(reaps("a", "b"), {"linux": 2}, 25, ["a"], id="one of a small pool"),
        pytest.param(reaps("a", "b"), {"linux": 0}, 25, ["a"], id="one of a pool not seen"),
        pytest.param(reaps("a", "b"), {"linux": 99}, 1, ["a"], id="so many in all"),
        pytest.param(
            [*reaps("a"), *reaps("b", pool="mac")],
            {"linux": 1, "mac": 1},
            25,
            ["a", "b"],
            id="each pool has its own share",
        ),
    ],
)
def test_one_tick_deletes_a_share(
    wanted: list[Reap], sizes: dict[str, int], at_most: int, chosen: list[str]
) -> None:
    assert [r.pod.name for r in capped(wanted, sizes, share=0.25, at_most=at_most)] == chosen


def test_the_oldest_go_first() -> None:
    wanted = [Reap(a_stamped("a", age_s=400.0), ""), Reap(a_stamped("b", age_s=500.0), "")]

    assert [r.pod.name for r in capped(wanted, {"linux": 4}, share=0.25, at_most=9)] == ["b"]


def test_a_new_stamp_on_the_same_pod_is_another_case() -> None:
    assert a_stamped().key != a_stamped(claim="forge/2@later").key
