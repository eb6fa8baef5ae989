"""How missing runners are shared between a template on trial and the last one that worked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remuda.model.runner import Phase
from remuda.pools.decide.actions import Cause, CreateRunner, MarkRunner, ReapRunner
from remuda.pools.decide.brake import Slots
from remuda.pools.decide.one_pass import Surroundings, decide
from remuda.pools.decide.replicas import fill, shrink
from remuda.pools.decide.rollout import roll
from remuda.pools.decide.trial import has_worked
from remuda.pools.guards import Guards
from tests.unit.pools.builders import (
    NEW,
    NOW,
    OLD,
    a_pool,
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
from tests.unit.pools.decide.test_one_pass import AROUND, POOLS, RUNNERS, applied

if TYPE_CHECKING:
    from remuda.model.pool import Pool
    from remuda.model.runner import Runner

ON_TRIAL = a_pool(replicas=10, roll_percent=20, proven=OLD)
"""Two of ten may try the new template."""
STUCK = replace(ON_TRIAL, roll_waiting_since=ago(600))


def good(number: int) -> list[Runner]:
    return [warm(f"good-{n}", template=OLD) for n in range(number)]


def made(pool: Pool, runners: list[Runner], world: Surroundings | None = None) -> tuple[int, int]:
    """Return how many are made from the pool's template, and from the proven one."""
    actions = decide(pool, runners, world or around(), NOW).actions
    templates = [a.template for a in actions if isinstance(a, CreateRunner)]
    assert set(templates) <= {pool.template, pool.proven}
    current = templates.count(pool.template)
    return current, len(templates) - current


@pytest.mark.parametrize(
    ("pool", "runners", "expected"),
    [
        pytest.param(ON_TRIAL, good(9), (1, 0), id="a missing runner tries the new template"),
        pytest.param(ON_TRIAL, good(5), (2, 3), id="those beyond the cap are of what worked"),
        pytest.param(ON_TRIAL, [*good(5), starting("a"), starting("b")], (0, 3), id="those that start already count"),
        pytest.param(ON_TRIAL, [*good(5), unseen("a"), waiting("b")], (0, 3), id="so do those without a host"),
        pytest.param(ON_TRIAL, [*good(5), starting("a"), ended("b")], (1, 3), id="one that failed is tried again"),
        pytest.param(
            ON_TRIAL, [*good(5), starting("a", deleting_since=ago(1)), starting("b")], (1, 3),
            id="one that was given up makes room for another try",
        ),
        pytest.param(ON_TRIAL, [*good(5), warm("a")], (4, 0), id="a warm one proves the template: all are of it"),
        pytest.param(ON_TRIAL, [*good(5), busy("a")], (4, 0), id="a busy one was warm"),
        pytest.param(
            ON_TRIAL, [*good(5), warm("a", deleting_since=ago(1))], (2, 3), id="one that goes proves nothing any more"
        ),
        pytest.param(
            STUCK, [*good(4), warm("a", warm_at=ago(700)), starting("b")], (1, 3), id="a stuck roll falls back as well"
        ),
        pytest.param(replace(ON_TRIAL, paused=True), good(5), (2, 3), id="a pause changes nothing about it"),
        pytest.param(replace(ON_TRIAL, replicas=30), good(10), (6, 14), id="a pool that grows grows by what worked"),
        pytest.param(replace(ON_TRIAL, proven=""), good(5), (5, 0), id="nothing worked before"),
        pytest.param(replace(ON_TRIAL, proven=""), [], (10, 0), id="a new pool is filled with its template"),
        pytest.param(replace(ON_TRIAL, proven=NEW), good(5), (5, 0), id="a remembered template needs no living proof"),
        pytest.param(replace(ON_TRIAL, template=OLD), [*good(5), starting("a")], (4, 0), id="back to what worked"),
        pytest.param(replace(ON_TRIAL, deleting=True), good(5), (0, 0), id="a deleted pool makes nobody"),
    ],
)  # fmt: skip
def test_what_missing_runners_are_made_from(
    pool: Pool, runners: list[Runner], expected: tuple[int, int]
) -> None:
    assert made(pool, runners) == expected


@pytest.mark.parametrize(
    ("trying", "free", "most", "expected"),
    [
        pytest.param(0, 4, 4, (1, 3), id="one always tries, and what works is served next"),
        pytest.param(0, 1, 4, (1, 0), id="one tries even where slots are short"),
        pytest.param(1, 1, 4, (0, 1), id="a second does not"),
        pytest.param(1, 6, 8, (0, 5), id="half of the slots stay free of tries"),
        pytest.param(1, 7, 4, (0, 5), id="however many are free just now"),
        pytest.param(1, 9, 4, (2, 5), id="beyond that half there are tries"),
        pytest.param(0, 1, 1, (0, 1), id="a single slot goes to what works"),
        pytest.param(0, 0, 4, (0, 0), id="no slot, no runner"),
    ],
)
def test_who_gets_the_start_slots(
    trying: int, free: int, most: int, expected: tuple[int, int]
) -> None:
    pool = a_pool(replicas=20, roll_percent=20, proven=OLD)
    tries = [starting(f"try-{n}") for n in range(trying)]
    runners = [*good(11), *tries]
    # Nine are missing with nobody trying: four may try, five are of what worked. One that tries is one of the four.
    runners += [busy(f"busy-{n}", template=OLD) for n in range(20 - 9 - len(runners) + trying)]
    world = Surroundings(slots=Slots(free, most=most))

    assert made(pool, runners, world) == expected


def test_a_single_slot_is_for_a_try_once_what_works_is_there() -> None:
    world = Surroundings(slots=Slots(1, most=1))

    assert made(ON_TRIAL, good(8), world) == (1, 0)


def test_what_works_is_made_first() -> None:
    actions = decide(ON_TRIAL, good(5), around(), NOW).actions

    creates = [a.template for a in actions if isinstance(a, CreateRunner)]
    assert creates == [OLD, OLD, OLD, NEW, NEW]


def test_without_the_guard_all_are_of_the_template() -> None:
    decision = decide(ON_TRIAL, good(5), around(), NOW, guards=Guards.without("fallback"))

    templates = {a.template for a in decision.actions if isinstance(a, CreateRunner)}
    assert templates == {NEW}


@pytest.mark.parametrize(
    ("pool", "runners", "expected"),
    [
        pytest.param(a_pool(), [starting("a"), waiting("b")], False, id="not before one is warm"),
        pytest.param(a_pool(), [warm("a")], True, id="the first of a new pool is warm"),
        pytest.param(a_pool(), [busy("a")], True, id="or has a job already"),
        pytest.param(a_pool(), [ended("a")], False, id="one that ended may have failed"),
        pytest.param(a_pool(), [warm("a", template=OLD)], False, id="another template's runner says nothing"),
        pytest.param(a_pool(proven=OLD), [warm("a"), *good(1)], False, id="not before its roll is through"),
        pytest.param(a_pool(proven=OLD), [warm("a"), busy("b", template=OLD)], False, id="nor while an old one works"),
        pytest.param(a_pool(proven=OLD), [warm("a"), starting("b")], True, id="the roll is through"),
        pytest.param(a_pool(), [warm("a"), warm("b", template=OLD)], True, id="nothing else is known to work"),
        pytest.param(a_pool(proven=NEW), [warm("a")], False, id="it is remembered already"),
        pytest.param(a_pool(deleting=True), [warm("a")], False, id="a deleted pool remembers nothing"),
    ],
)  # fmt: skip
def test_when_a_template_is_worth_remembering(
    pool: Pool,
    runners: list[Runner],
    expected: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert decide(pool, runners, around(), NOW).worked is expected


def test_a_shrinking_pool_gives_up_tries_before_what_works() -> None:
    runners = [starting("try"), waiting("try-too"), *good(3), starting("cold", template=OLD)]
    gone = [r.runner.name for r in shrink(replace(ON_TRIAL, replicas=2), runners)]

    assert gone[:3] == ["cold", "try-too", "try"]
    assert gone[3].startswith("good")


def test_a_shrinking_pool_keeps_what_starts_of_a_proven_template() -> None:
    runners = [starting("new"), *good(2)]
    (gone,) = shrink(a_pool(replicas=2, proven=NEW), runners)

    assert gone.runner.name.startswith("good")


def test_a_mark_for_the_template_on_trial_holds() -> None:
    decision = decide(ON_TRIAL, [*good(8), marked("m"), starting("a")], around(), NOW)

    assert decision.actions == ()


def test_back_at_what_worked_its_runners_are_current_and_the_tries_go() -> None:
    runners = [*good(8), starting("a"), starting("b")]
    decision = decide(replace(ON_TRIAL, template=OLD), runners, around(), NOW)

    assert [(a.runner.name, a.cause) for a in decision.actions if isinstance(a, ReapRunner)] == [
        ("a", Cause.ROLL),
        ("b", Cause.ROLL),
    ]


# --- properties -------------------------------------------------------------------------------------------------------

TRIALS = st.builds(replace, POOLS, proven=st.sampled_from(["", OLD, OLD, NEW]))


@given(TRIALS, RUNNERS, AROUND, st.none() | st.integers(1, 8))
def test_no_more_than_the_cap_try_a_template(
    pool: Pool, runners: list[Runner], world: Surroundings, most: int | None
) -> None:
    world = replace(world, slots=replace(world.slots, most=most))
    current, proven = made(pool, runners, world)
    trying = sum(
        r.is_alive and r.phase is Phase.STARTING and r.template == pool.template for r in runners
    )

    assert current + proven <= world.slots.free
    if pool.proven == OLD and not has_worked(pool, runners) and current:
        assert trying + current <= pool.roll_cap
    if pool.proven != OLD:
        assert proven == 0


@given(TRIALS, RUNNERS)
def test_whom_a_roll_retires_for_a_trial_is_replaced_by_a_try(
    pool: Pool, runners: list[Runner]
) -> None:
    """Or a runner that was just made from what worked would be removed, made again, and so on."""
    pool = replace(pool, proven=OLD, deleting=False)
    assume(not has_worked(pool, runners))
    assume(sum(r.is_alive for r in runners) <= pool.replicas)
    # Whose mark ran out was retired before.
    actions = [a for a in roll(pool, runners, NOW).actions if a.runner.mark is None]
    gone = {a.runner.name for a in actions if isinstance(a, ReapRunner | MarkRunner)}
    left = [r for r in runners if r.name not in gone]

    creates = fill(pool, left, Slots(100), falls_back=True).creates

    assert sum(c.template == NEW for c in creates) >= len(gone)


@given(TRIALS, RUNNERS, AROUND)
def test_a_second_look_makes_no_further_runner(
    pool: Pool, runners: list[Runner], world: Surroundings
) -> None:
    first = decide(pool, runners, world, NOW)
    after = applied(runners, first)
    second = decide(pool, after, world, NOW)
    creates = [a for a in second.actions if isinstance(a, CreateRunner)]

    assert len(creates) <= max(0, pool.replicas - sum(r.is_alive for r in after))
