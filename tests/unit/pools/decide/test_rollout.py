from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.model.runner import Mark
from remuda.pools.decide.actions import Cause, MarkRunner, ReapRunner, UnmarkRunner
from remuda.pools.decide.rollout import RollAction, roll
from remuda.pools.guards import Guards
from tests.unit.pools.builders import (
    NEW,
    NOW,
    OLD,
    a_pool,
    ago,
    busy,
    ended,
    marked,
    starting,
    unseen,
    waiting,
    warm,
)

if TYPE_CHECKING:
    from remuda.model.pool import Pool
    from remuda.model.runner import Runner

POOL = a_pool(replicas=4, roll_percent=50)
"""Its cap is two."""


def stale(*names: str) -> list[Runner]:
    return [warm(name, template=OLD) for name in names]


def told(actions: tuple[RollAction, ...]) -> list[str]:
    """Return what happens to whom, as words."""
    verbs = {MarkRunner: "mark", UnmarkRunner: "unmark", ReapRunner: "reap"}
    return [f"{verbs[type(action)]} {action.runner.name}" for action in actions]


@pytest.mark.parametrize(
    ("runners", "expected"),
    [
        pytest.param([warm(n) for n in "abcd"], [], id="a current pool is left alone"),
        pytest.param(stale("a", "b", "c", "d"), ["mark a", "mark b"], id="as many as the cap are marked"),
        pytest.param([marked("a"), *stale("b", "c", "d")], ["mark b"], id="a marked one takes room"),
        pytest.param([marked("a"), marked("b"), *stale("c", "d")], [], id="the cap is full"),
        pytest.param([starting("a"), *stale("b", "c", "d")], ["mark b"], id="a cold replacement takes room"),
        pytest.param([waiting("a"), unseen("b"), *stale("c", "d")], [], id="replacements without a host too"),
        pytest.param(stale("a", "b", "c"), ["mark a"], id="what is missing takes room"),
        pytest.param(stale("a", "b"), [], id="blocked creates stop the roll"),
        pytest.param(stale("a"), [], id="more missing than the cap retires nobody"),
        pytest.param([ended("a", template=OLD), *stale("b", "c", "d")], ["mark b"], id="an ended one is missing"),
        pytest.param([busy("a"), *stale("b", "c", "d")], ["mark b", "mark c"], id="a busy replacement is warm"),
        pytest.param([busy(n, template=OLD) for n in "abcd"], [], id="busy stale ones turn over by themselves"),
        pytest.param(
            [*stale("a", "b"), starting("c", template=OLD), waiting("d", template=OLD)], ["reap c", "reap d"],
            id="those that never became warm go first, and directly",
        ),
        pytest.param(
            [*stale("a", "b", "c"), starting("d", template=OLD)], ["reap d", "mark a"],
            id="reaps and marks share the cap",
        ),
        pytest.param([unseen("a", template=OLD), *stale("b", "c", "d")], ["mark b", "mark c"], id="nameless ones wait"),
        pytest.param(
            [warm("a", template=OLD, drain=True), *stale("b", "c", "d")], ["mark b"],
            id="one that a person drains leaves already",
        ),
        pytest.param([*stale(*"abcd"), *stale(*"ef")], ["mark a", "mark b"], id="a surplus is no credit"),
        pytest.param(
            [warm("a", template=OLD, created_at=ago(5)), *stale("b"), warm("c"), warm("d")], ["mark b", "mark a"],
            id="the oldest goes first",
        ),
    ],
)  # fmt: skip
def test_who_is_retired(runners: list[Runner], expected: list[str]) -> None:
    assert told(roll(POOL, runners, NOW).actions) == expected


@pytest.mark.parametrize(
    ("runner", "expected"),
    [
        pytest.param(marked("a"), [], id="a mark for this target holds"),
        pytest.param(marked("a", target="other", age_s=45), ["unmark a"], id="a mark for another target is void"),
        pytest.param(
            marked("a", target="other", age_s=44), [], id="a void mark counts while its runner may be on its way out"
        ),
        pytest.param(
            warm("a", mark=Mark("other", ago(45))), ["unmark a"], id="a roll that was taken back voids it"
        ),
        pytest.param(warm("a", mark=Mark(NEW, ago(45))), ["unmark a"], id="a current runner needs no mark"),
        pytest.param(
            busy("a", template=OLD, mark=Mark(NEW, ago(5))), ["unmark a"], id="a job beats the mark"
        ),
        pytest.param(
            busy("a", template=OLD, mark=Mark(NEW, ago(500))), ["unmark a"],
            id="a busy runner outlives its mark's deadline",
        ),
        pytest.param(marked("a", age_s=119), [], id="a mark has its time"),
        pytest.param(marked("a", age_s=120), ["reap a"], id="one that does not leave is taken away"),
        pytest.param(
            marked("a", target="other", age_s=500), ["unmark a"], id="a void mark has no deadline"
        ),
        pytest.param(marked("a", age_s=-300), [], id="another leader's clock may have been ahead"),
        pytest.param(
            replace(marked("a"), mark=Mark(NEW, datetime.max.replace(tzinfo=UTC))), ["reap a"],
            id="a mark from far in the future holds nothing up",
        ),
        pytest.param(
            replace(marked("a"), mark=Mark("other", datetime.max.replace(tzinfo=UTC))), ["unmark a"],
            id="a void one neither",
        ),
        pytest.param(marked("a", deleting_since=ago(1), age_s=500), [], id="one being deleted is left"),
        pytest.param(
            ended("a", template=OLD, mark=Mark("other", ago(5))), [], id="an ended one is another's worry"
        ),
    ],
)  # fmt: skip
def test_marks(runner: Runner, expected: list[str]) -> None:
    pool = a_pool(replicas=1)

    assert told(roll(pool, [runner], NOW).actions) == expected


def test_an_expired_mark_is_a_roll_and_not_a_new_retirement() -> None:
    (reap,) = roll(POOL, [marked("a", age_s=500), marked("b"), *stale("c", "d")], NOW).actions

    assert isinstance(reap, ReapRunner)
    assert (reap.runner.name, reap.cause) == ("a", Cause.ROLL)


def test_a_paused_roll_marks_nobody_new_but_ends_what_it_began() -> None:
    pool = a_pool(replicas=4, roll_percent=50, paused=True)
    runners = [marked("a", age_s=500), starting("b", template=OLD), *stale("c", "d")]

    result = roll(pool, runners, NOW)

    assert told(result.actions) == ["reap a"]
    assert result.waiting_since is None


def test_the_next_is_retired_when_the_replacement_is_warm() -> None:
    pool = a_pool(replicas=2)

    assert told(roll(pool, [starting("new"), *stale("a")], NOW).actions) == []
    assert told(roll(pool, [warm("new"), *stale("a")], NOW).actions) == ["mark a"]


def rolling(since: datetime | None) -> Pool:
    return a_pool(replicas=2, roll_waiting_since=since)


@pytest.mark.parametrize(
    ("since", "runners", "expected"),
    [
        pytest.param(None, [warm("a"), warm("b")], None, id="no roll waits for nothing"),
        pytest.param(ago(50), [warm("a"), warm("b")], None, id="a finished roll forgets"),
        pytest.param(ago(50), [warm("a"), busy("b", template=OLD)], None, id="nothing is in flight"),
        pytest.param(None, [starting("a"), *stale("b")], NOW, id="something begins to be in flight"),
        pytest.param(None, [warm("a"), *stale("b")], NOW, id="a mark begins to be in flight"),
        pytest.param(ago(500), [starting("a"), *stale("b")], ago(500), id="the wait goes on"),
        pytest.param(ago(500), stale("b"), ago(500), id="a replacement that is missing is awaited too"),
        pytest.param(
            ago(500), [starting("a"), warm("c", warm_at=ago(30)), *stale("b")], ago(30),
            id="a warm replacement is progress",
        ),
        pytest.param(
            ago(500), [starting("a"), busy("c", warm_at=ago(30)), *stale("b")], ago(30),
            id="a replacement that is busy already is progress",
        ),
        pytest.param(
            ago(20), [starting("a"), warm("c", warm_at=ago(30)), *stale("b")], ago(20),
            id="older progress does not turn the clock back",
        ),
        pytest.param(
            ago(500), [starting("a"), warm("b", template=OLD, warm_at=ago(30))], ago(500),
            id="a stale runner that became warm is none",
        ),
        pytest.param(
            ago(500), [starting("a"), warm("c", warm_at=ago(-300)), *stale("b")], NOW,
            id="nothing became warm in the future",
        ),
        pytest.param(ago(-3600), [starting("a"), *stale("b")], NOW, id="no wait began in the future"),
    ],
)  # fmt: skip
def test_waiting_since(
    since: datetime | None, runners: list[Runner], expected: datetime | None
) -> None:
    pool = a_pool(replicas=len(runners) if len(runners) > 1 else 2, roll_waiting_since=since)

    assert roll(pool, runners, NOW).waiting_since == expected


@pytest.mark.parametrize(
    ("runners", "why"),
    [
        pytest.param(
            [starting("new", node="host-7"), *stale("a", "b", "c")], "new on host-7 does not become warm",
            id="a start that hangs",
        ),
        pytest.param(
            [waiting("new", unschedulable_why="0/3 nodes are available"), *stale("a", "b", "c")],
            "new finds no host: 0/3 nodes are available",
            id="a replacement without a host",
        ),
        pytest.param([waiting("new"), *stale("a", "b", "c")], "new finds no host", id="nobody knows why"),
        pytest.param(stale("a", "b", "c"), "1 of 4 runners are missing", id="creates that are blocked"),
        pytest.param([marked("x"), *stale("a", "b", "c")], "x was asked to leave and has not", id="a mark"),
        pytest.param(
            [warm("x", drain=True, warm_at=ago(9999)), *stale("a", "b", "c")],
            "a person asked x to take no job, and it is still there",
            id="a drained runner that stays",
        ),
    ],
)  # fmt: skip
def test_a_roll_without_progress_retires_nobody_else_and_says_why(
    runners: list[Runner], why: str
) -> None:
    for since, stuck in ((ago(599), ""), (ago(600), why)):
        pool = a_pool(replicas=4, roll_percent=50, roll_waiting_since=since)
        result = roll(pool, runners, NOW)

        assert result.stuck == stuck
        assert bool(result.actions) is not bool(stuck)


def test_a_stuck_roll_goes_on_after_one_replacement_became_warm() -> None:
    pool = a_pool(replicas=4, roll_percent=50, roll_waiting_since=ago(9999))

    result = roll(pool, [starting("new"), warm("newer", warm_at=ago(1)), *stale("a", "b")], NOW)

    assert (result.stuck, told(result.actions)) == ("", ["mark a"])


@pytest.mark.parametrize(
    ("pool", "runners", "seconds"),
    [
        pytest.param(a_pool(replicas=1), [marked("a", age_s=100)], 20, id="a mark's deadline"),
        pytest.param(rolling(ago(570)), [starting("n"), *stale("a")], 30, id="the progress deadline"),
        pytest.param(rolling(ago(570)), [marked("n", age_s=110), *stale("a")], 10, id="the sooner one"),
        pytest.param(a_pool(replicas=2), [warm("n"), *stale("a")], 600, id="a wait that begins now"),
        pytest.param(rolling(ago(9999)), [starting("n"), *stale("a")], None, id="a stuck roll waits for events"),
        pytest.param(a_pool(replicas=1), [warm("n", mark=Mark("x", ago(25)))], 20, id="a void mark that settles"),
        pytest.param(a_pool(replicas=1), [warm("n")], None, id="nothing to wait for"),
    ],
)  # fmt: skip
def test_when_to_look_again(pool: Pool, runners: list[Runner], seconds: int | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)

    assert roll(pool, runners, NOW).look_again_after == expected


def test_guards_that_are_out_let_harm_through() -> None:
    everyone = roll(POOL, stale("a", "b", "c", "d"), NOW, guards=Guards.without("roll_cap"))
    void = roll(POOL, [marked("a", target="x")], NOW, guards=Guards.without("void_marks"))

    assert len(everyone.actions) == 4
    assert void.actions == ()
