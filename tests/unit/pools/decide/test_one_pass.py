from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.model.runner import Mark, Phase
from remuda.pools.decide.actions import (
    Cause,
    CreateRunner,
    MarkRunner,
    ReapRunner,
    ReleasePool,
    UnmarkRunner,
)
from remuda.pools.decide.brake import Slots
from remuda.pools.decide.counts import count
from remuda.pools.decide.one_pass import Decision, Surroundings, decide
from tests.unit.pools.builders import (
    NEW,
    NOW,
    OLD,
    a_pool,
    a_runner,
    ago,
    around,
    busy,
    ended,
    marked,
    starting,
    unseen,
    waiting,
    warm,
)

if TYPE_CHECKING:
    from random import Random

    from remuda.model.pool import Pool
    from remuda.model.runner import Runner


def told(decision: Decision) -> list[str]:
    """Return what happens to whom, as words."""
    words = []
    for action in decision.actions:
        match action:
            case CreateRunner():
                words.append("create")
            case ReapRunner(runner=runner, cause=cause):
                words.append(f"{cause} {runner.name}")
            case MarkRunner(runner=runner):
                words.append(f"mark {runner.name}")
            case UnmarkRunner(runner=runner):
                words.append(f"unmark {runner.name}")
            case ReleasePool():
                words.append("release")
    return words


@pytest.mark.parametrize(
    ("pool", "runners", "expected"),
    [
        pytest.param(a_pool(replicas=2), [], ["create", "create"], id="an empty pool is filled"),
        pytest.param(a_pool(replicas=1), [warm("a")], [], id="a pool as wanted is left alone"),
        pytest.param(a_pool(replicas=1), [ended("a")], ["ended a", "create"], id="an ended one is replaced at once"),
        pytest.param(
            a_pool(replicas=1), [starting("a", bound_at=ago(999))], ["start_timeout a"],
            id="a late start keeps its place until its deletion is accepted",
        ),
        pytest.param(a_pool(replicas=1), [warm("a", node="bad")], ["node_drain a"], id="so does one on a drained node"),
        pytest.param(a_pool(replicas=1), [starting("a", template=OLD)], ["roll a"], id="so does one that is rolled"),
        pytest.param(
            a_pool(replicas=1), [warm("a", node="bad", template=OLD)], ["node_drain a"], id="one reason is enough"
        ),
        pytest.param(
            a_pool(replicas=2), [warm("a", node="bad"), warm("b", template=OLD)], ["node_drain a"],
            id="what a drained node takes counts against the roll",
        ),
        pytest.param(
            a_pool(replicas=2), [starting("a", bound_at=ago(999)), warm("b", template=OLD)], ["start_timeout a"],
            id="what a deadline takes counts against the roll",
        ),
        pytest.param(
            a_pool(replicas=1), [starting("a", bound_at=ago(999)), warm("b")], ["start_timeout a"],
            id="a late start is surplus enough",
        ),
        pytest.param(
            a_pool(replicas=2), [warm("a", template=OLD), warm("b", template=OLD), warm("c")],
            ["scale_down a", "mark b"],
            id="scaling down takes a stale one, the roll the next",
        ),
        pytest.param(
            a_pool(replicas=2), [marked("a"), warm("b", template=OLD), warm("c")], ["scale_down a"],
            id="a leaving one that is too many holds the roll's budget until its deletion is accepted",
        ),
        pytest.param(
            a_pool(replicas=2), [busy("a"), ended("b", deleting_since=ago(9)), warm("c", deleting_since=ago(9))],
            ["create"], id="those being deleted are left and replaced",
        ),
        pytest.param(a_pool(deleting=True), [], ["release"], id="a deleted empty pool goes"),
        pytest.param(
            a_pool(deleting=True, replicas=9), [warm("a"), busy("b"), ended("c")], ["ended c", "pool_drain a"],
            id="a deleted pool never creates",
        ),
        pytest.param(
            a_pool(deleting=True), [marked("a", target="x"), busy("b", mark=Mark("x", NOW))], ["pool_drain a"],
            id="a deleted pool does not roll",
        ),
        pytest.param(a_pool(replicas=1), [unseen("a")], [], id="one that was asked for is waited for"),
    ],
)  # fmt: skip
def test_decide(pool: Pool, runners: list[Runner], expected: list[str]) -> None:
    assert told(decide(pool, runners, around(9, "bad"), NOW)) == expected


@pytest.mark.parametrize(
    ("pool", "runners", "free", "seconds"),
    [
        pytest.param(a_pool(replicas=1), [warm("a")], 9, None, id="nothing is due"),
        pytest.param(a_pool(replicas=1), [starting("a", bound_at=ago(100))], 9, 200, id="a start deadline"),
        pytest.param(a_pool(replicas=2), [starting("a")], 0, 5, id="a blocked create"),
        pytest.param(a_pool(replicas=2), [starting("a"), marked("b", age_s=20)], 9, 100, id="a mark"),
        pytest.param(
            a_pool(replicas=2, roll_waiting_since=ago(550)), [starting("a"), warm("b", template=OLD)], 9, 50,
            id="a roll's progress",
        ),
        pytest.param(a_pool(replicas=0), [warm("a")], 9, 1, id="what is reaped alive may need a successor"),
        pytest.param(a_pool(replicas=0), [ended("a")], 9, None, id="what ended does not"),
        pytest.param(a_pool(deleting=True), [warm("a", deleting_since=ago(50))], 9, 10, id="a host that cleans up"),
        pytest.param(a_pool(deleting=True), [busy("a")], 9, None, id="the end of a job is an event"),
        pytest.param(a_pool(deleting=True), [unseen("a")], 9, 5, id="one that may still appear"),
    ],
)  # fmt: skip
def test_look_again_after(
    pool: Pool, runners: list[Runner], free: int, seconds: int | None
) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)

    assert decide(pool, runners, around(free), NOW).look_again_after == expected


def test_every_action_says_why() -> None:
    runners = [
        ended("a"),
        starting("b", bound_at=ago(999)),
        warm("c", node="bad"),
        marked("d", target="x", age_s=99),
        marked("e", age_s=999),
        warm("f", template=OLD),
        warm("g", template=OLD),
    ]

    actions = decide(a_pool(replicas=9, roll_percent=100), runners, around(9, "bad"), NOW).actions

    assert {type(a) for a in actions} == {ReapRunner, MarkRunner, UnmarkRunner, CreateRunner}
    assert all(a.why and a.why[0].islower() and not a.why.endswith(".") for a in actions)


# --- properties -------------------------------------------------------------------------------------------------------

TIMES = st.sampled_from([ago(s) for s in (0, 1, 119, 121, 299, 301, 700)])
MARKS = st.builds(Mark, target=st.sampled_from([NEW, OLD, "other"]), at=TIMES)
RUNNERS = st.lists(
    st.builds(
        lambda name, phase, **fields: replace(
            a_runner(name, phase), **fields, warm_at=NOW if phase is Phase.WARM else None
        ),
        name=st.sampled_from("abcdefghijkl"),
        phase=st.sampled_from(Phase),
        template=st.sampled_from([NEW, OLD, OLD]),
        created_at=TIMES,
        node=st.sampled_from(["host-1", "host-1", "bad", ""]),
        bound_at=st.none() | TIMES,
        unschedulable_since=st.none() | TIMES,
        mark=st.none() | st.none() | MARKS,
        deleting_since=st.none() | st.none() | TIMES,
        drain=st.sampled_from([False, False, False, True]),
        uid=st.sampled_from(["uid", "uid", "uid", ""]),
    ),
    max_size=12,
    unique_by=lambda r: r.name,
)
POOLS = st.builds(
    a_pool,
    replicas=st.integers(0, 12),
    roll_percent=st.sampled_from([1, 20, 50, 100]),
    paused=st.booleans(),
    deleting=st.booleans(),
    roll_waiting_since=st.none() | TIMES,
)
AROUND = st.builds(
    Surroundings,
    slots=st.builds(Slots, st.integers(0, 8)),
    draining_nodes=st.sampled_from([frozenset[str](), frozenset({"bad"})]),
)


@given(POOLS, RUNNERS, AROUND, st.randoms(use_true_random=False))
def test_input_order_never_matters(
    pool: Pool, runners: list[Runner], world: Surroundings, shuffler: Random
) -> None:
    shuffled = list(runners)
    shuffler.shuffle(shuffled)

    assert decide(pool, shuffled, world, NOW) == decide(pool, runners, world, NOW)


def test_runners_that_differ_in_name_alone_are_told_apart_by_it() -> None:
    runners = [waiting("a"), warm("b"), warm("c"), warm("d", template=OLD), warm("e", template=OLD)]
    decisions = {decide(a_pool(replicas=4), p, around(), NOW) for p in permutations(runners)}

    assert len(decisions) == 1


@given(POOLS, RUNNERS, AROUND)
def test_busy_and_deleted_runners_are_never_reaped(
    pool: Pool, runners: list[Runner], world: Surroundings
) -> None:
    for action in decide(pool, runners, world, NOW).actions:
        if isinstance(action, ReapRunner):
            assert action.runner.phase is not Phase.BUSY
            assert action.runner.deleting_since is None


@given(POOLS, RUNNERS, AROUND)
def test_no_runner_is_touched_twice_and_every_one_can_be_named(
    pool: Pool, runners: list[Runner], world: Surroundings
) -> None:
    touched = [
        a.runner
        for a in decide(pool, runners, world, NOW).actions
        if isinstance(a, ReapRunner | MarkRunner | UnmarkRunner)
    ]

    assert len({r.name for r in touched}) == len(touched)
    assert all(r.uid for r in touched)


@given(POOLS, RUNNERS, AROUND)
def test_creates_stay_within_gap_and_slots_and_never_meet_a_shrink(
    pool: Pool, runners: list[Runner], world: Surroundings
) -> None:
    decision = decide(pool, runners, world, NOW)
    creates = sum(isinstance(a, CreateRunner) for a in decision.actions)
    shrinks = sum(
        isinstance(a, ReapRunner) and a.cause is Cause.SCALE_DOWN for a in decision.actions
    )
    alive = sum(r.is_alive for r in runners)

    assert creates <= world.slots.free
    assert creates <= (0 if pool.deleting else max(0, pool.replicas - alive))
    assert not (creates and shrinks)


@given(POOLS, RUNNERS, AROUND)
def test_a_roll_never_takes_more_than_its_cap(
    pool: Pool, runners: list[Runner], world: Surroundings
) -> None:
    decision = decide(pool, runners, world, NOW)
    by_others = without(
        runners,
        [a for a in decision.actions if isinstance(a, ReapRunner) and a.cause is not Cause.ROLL],
    )
    before = count(pool, by_others, NOW).unavailable

    after = count(pool, applied(runners, decision), NOW).unavailable

    # A create adds none: it was missing before. Void marks that are taken away only lower it.
    assert after <= max(pool.roll_cap, before)


@given(POOLS, RUNNERS, AROUND)
def test_a_paused_roll_retires_nobody_new(
    pool: Pool, runners: list[Runner], world: Surroundings
) -> None:
    for action in decide(replace(pool, paused=True), runners, world, NOW).actions:
        assert not isinstance(action, MarkRunner)
        if isinstance(action, ReapRunner) and action.cause is Cause.ROLL:
            assert action.runner.mark is not None


@given(POOLS, RUNNERS)
def test_an_unreadable_fleet_makes_and_drains_nobody(pool: Pool, runners: list[Runner]) -> None:
    unreadable = Surroundings(slots=Slots(0, "fleet_view_error"))
    decision = decide(pool, runners, unreadable, NOW)

    assert not any(isinstance(a, CreateRunner) for a in decision.actions)
    assert not any(
        isinstance(a, ReapRunner) and a.cause is Cause.NODE_DRAIN for a in decision.actions
    )


@given(POOLS, RUNNERS, AROUND)
def test_a_second_look_after_everything_was_done_does_nothing_twice(
    pool: Pool, runners: list[Runner], world: Surroundings
) -> None:
    first = decide(pool, runners, world, NOW)
    touched = {a.runner.name for a in first.actions if isinstance(a, ReapRunner | MarkRunner)}

    second = decide(pool, applied(runners, first), world, NOW)

    again = {a.runner.name for a in second.actions if isinstance(a, ReapRunner | MarkRunner)}
    assert not {n for n in touched & again if not _is_scaled_down(second, n)}


def _is_scaled_down(decision: Decision, name: str) -> bool:
    """Say whether a runner goes because of the pool's size: one that was marked a moment ago may."""
    return any(
        isinstance(a, ReapRunner) and a.runner.name == name and a.cause is Cause.SCALE_DOWN
        for a in decision.actions
    )


def without(runners: list[Runner], reaps: list[ReapRunner]) -> list[Runner]:
    gone = {reap.runner.name for reap in reaps}
    return [r for r in runners if r.name not in gone]


def applied(runners: list[Runner], decision: Decision) -> list[Runner]:
    """Return the runners after every action was carried out."""
    now = {r.name: r for r in runners}
    for number, action in enumerate(decision.actions):
        match action:
            case CreateRunner(template=template):
                name = f"new-{number}"
                now[name] = waiting(name, template=template, created_at=NOW)
            case ReapRunner(runner=r):
                now[r.name] = replace(r, deleting_since=NOW)
            case MarkRunner(runner=r, target=target):
                now[r.name] = replace(r, mark=Mark(target, NOW))
            case UnmarkRunner(runner=r):
                now[r.name] = replace(r, mark=None)
            case ReleasePool():
                pass
    return list(now.values())
