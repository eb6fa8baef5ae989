"""Whole rolls, told step by step. What counts is how many runners the pool cannot offer after each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pytest

from remuda.model.runner import Phase
from remuda.pools.decide.actions import CreateRunner, ReapRunner
from remuda.pools.decide.counts import count, is_stale
from remuda.pools.decide.one_pass import decide
from remuda.pools.guards import Guards
from tests.unit.pools.builders import a_pool, around
from tests.unit.pools.world import BROKEN, NODES, Outcome, World

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.pools.decide.counts import Counts

NAME = "mac"
REPLICAS = 20
CAP = 2
SHUTDOWN = timedelta(seconds=30)


class Story:
    """One pool of twenty at ten per cent, and a host that takes a while to boot."""

    def __init__(self, seed: int = 1, guards: Guards | None = None) -> None:
        self.world = World(guards or Guards())
        self.told: dict[str, datetime] = {}
        """When dispatch told which runner to leave. Its VM takes a while to shut down."""
        self.random = Random(seed)  # noqa: S311 - a seeded story, no secret
        pool = a_pool(name=NAME, template="one", replicas=REPLICAS, roll_percent=10)
        self.world.put_pool(pool)
        self.world.list_everything()
        while self.counts().warm < REPLICAS:
            self.step(lag=0)

    def counts(self) -> Counts:
        return count(self.world.pools[NAME], self.world.of(NAME), self.world.now)

    def unavailable(self) -> int:
        """Count strictly: whoever is missing, not warm or marked, of whatever template."""
        idle = [r for r in self.world.of(NAME) if r.is_idle]
        return self.counts().missing + sum(
            r.phase is not Phase.WARM or r.mark is not None for r in idle
        )

    def edit(self, *, template: str | None = None, replicas: int | None = None) -> None:
        pool = self.world.pools[NAME]
        if template is not None:
            pool = replace(pool, template=template, roll_waiting_since=None)
        self.world.put_pool(pool if replicas is None else replace(pool, replicas=replicas))

    def of(self, template: str = "", *phases: Phase) -> set[str]:
        """Return who lives, of one template and in these phases."""
        names = self.world.alive(*phases)
        return {n for n in names if template in {"", self.world.runners[n][1].template}}

    def turn_over(self, number: int) -> None:
        """Let the jobs end that run, and others begin."""
        for name in self.world.alive(Phase.BUSY):
            self.world.end(name)
        warm = self.world.alive(Phase.WARM)
        for name in self.random.sample(warm, min(number, len(warm))):
            self.world.poll(name, job=True)

    def step(self, lag: int = 3, boots: float = 1.0) -> list[str]:
        """
        Let ten seconds pass for everybody. The operator sees all but the last few events.

        Returns what it decides about runners, in words.
        """
        world = self.world
        world.now += timedelta(seconds=10)
        world.deliver(max(0, len(world.events) - self.random.randint(0, lag)))
        world.deliver_pools()
        actions = world.think(NAME)
        while NAME in world.operator.intents:
            world.act(NAME, Outcome.ANSWERED)
        self._leave()
        for name in sorted(world.runners):
            world.clean_up(name)
        for name in world.alive(Phase.STARTING):
            world.bind(name, self.random.choice(NODES))
            if self.random.random() < boots:
                world.boot(name)
        creates = [f"create {a.template}" for a in actions if isinstance(a, CreateRunner)]
        return [*creates, *(str(a.cause) for a in actions if isinstance(a, ReapRunner))]

    def _leave(self) -> None:
        world = self.world
        for name, at in tuple(self.told.items()):
            if name not in world.alive() or world.now - at >= SHUTDOWN:
                del self.told[name]
                if name in world.alive():
                    world.end(name)
        for name in world.alive(Phase.WARM):
            if world.tells_to_leave(name):
                self.told.setdefault(name, world.now)


def roll(story: Story, *, steps_max: int = 300, boots: float = 0.5) -> list[int]:
    """Play until the roll is over; return how many were unavailable after each step."""
    unavailable = []
    for _ in range(steps_max):
        story.step(boots=boots)
        unavailable.append(story.unavailable())
        runners = story.world.of(NAME)
        if not any(is_stale(story.world.pools[NAME], r) for r in runners) and not unavailable[-1]:
            return unavailable
    pytest.fail(f"the roll is not over after {steps_max} steps: {story.counts()}")


@pytest.mark.parametrize("seed", range(5))
def test_a_roll_of_twenty_at_ten_per_cent_never_takes_more_than_two(seed: int) -> None:
    story = Story(seed)
    story.edit(template="two")

    unavailable = roll(story)

    assert max(unavailable) == CAP
    assert {r.template for r in story.world.of(NAME)} == {"two"}


def test_without_the_cap_the_same_roll_collapses_the_pool() -> None:
    story = Story(guards=Guards.without("roll_cap"))
    story.edit(template="two")

    with pytest.raises(AssertionError, match="S4"):
        roll(story)


@pytest.mark.parametrize("seed", range(5))
def test_a_roll_taken_back_half_way_ends_where_it_began(seed: int) -> None:
    story = Story(seed)
    first = {r.name for r in story.world.of(NAME)}
    story.edit(template="two")
    # The worst moment: runners were told to leave and have not yet left.
    while story.counts().stale > REPLICAS // 2 or not story.told:
        story.step(boots=0.5)
    story.edit(template="one")

    unavailable = roll(story)

    assert max(unavailable) <= CAP
    assert {r.template for r in story.world.of(NAME)} == {"one"}
    assert not any(r.mark for r in story.world.of(NAME))
    assert len(first & {r.name for r in story.world.of(NAME)}) >= REPLICAS // 2 - CAP


def test_a_broken_template_costs_the_cap_and_no_more() -> None:
    story = Story()
    story.edit(template=BROKEN)

    for _ in range(200):
        story.step()
        assert story.counts().warm >= REPLICAS - CAP

    pool, runners = story.world.pools[NAME], story.world.of(NAME)
    decision = decide(pool, runners, around(), story.world.now)
    (degraded,) = [c for c in decision.conditions if c.type == "Degraded"]
    assert (degraded.status, degraded.reason) == ("True", "RollStuck")


def test_a_broken_template_is_mended_by_the_next() -> None:
    story = Story()
    story.edit(template=BROKEN)
    for _ in range(100):
        story.step()
    story.edit(template="two")

    assert max(roll(story)) <= CAP


def test_a_roll_without_hosts_to_start_on_costs_the_cap_and_no_more() -> None:
    story = Story()
    story.world.nodes_readable = False
    story.edit(template="two")

    for _ in range(100):
        story.step()
        assert story.counts().warm >= REPLICAS - CAP

    story.world.nodes_readable = True
    assert max(roll(story)) <= CAP


def test_scaling_down_during_a_roll_takes_the_stale_and_keeps_the_new() -> None:
    story = Story()
    story.edit(template="two")
    while story.counts().stale > REPLICAS // 2:
        story.step()
    new = {r.name for r in story.world.of(NAME) if r.template == "two" and r.phase is Phase.WARM}
    story.edit(replicas=8)
    story.step(lag=0)
    story.step(lag=0)

    left = {r.name for r in story.world.of(NAME) if r.is_alive}
    assert len(left) == 8
    assert left <= new


def test_scaling_up_during_a_roll_makes_only_new_ones_and_pauses_it() -> None:
    story = Story()
    story.edit(template="two")
    while not story.of("two", Phase.WARM):
        story.step(lag=0)
    old = story.of("one")
    story.edit(replicas=REPLICAS + 10)
    for _ in range(10):
        story.step(lag=0, boots=0)

    assert story.of("one") <= old
    assert len(story.of("one")) >= len(old) - CAP  # what is asked for and not warm fills the cap
    roll(story)
    assert story.counts().warm == REPLICAS + 10


# --- a template on trial, while jobs turn runners over ----------------------------------------------------------------


def work(story: Story, steps: int) -> None:
    """Let two jobs begin with each step, and end with the next."""
    for _ in range(steps):
        story.turn_over(2)
        story.step()
    story.turn_over(0)


def test_jobs_do_not_spread_a_broken_template() -> None:
    story = Story()
    story.edit(template=BROKEN)

    for _ in range(200):
        story.turn_over(2)
        story.step()
        assert len(story.of(BROKEN)) <= CAP
        # Two ended just now, and two more when the operator did not look yet.
        assert len(story.of("one")) >= REPLICAS - CAP - 4


def test_without_the_fallback_jobs_spread_it() -> None:
    story = Story(guards=Guards.without("fallback"))
    story.edit(template=BROKEN)

    with pytest.raises(AssertionError, match="S5"):
        work(story, steps=20)


def test_with_a_broken_template_a_pool_without_jobs_only_tries_again() -> None:
    story = Story()
    story.edit(template=BROKEN)
    work(story, steps=100)
    for _ in range(30):
        story.step()
    good = story.of("one", Phase.WARM)

    tries: Counter[str] = Counter()
    for _ in range(300):
        tries.update(story.step(lag=0))
        assert len(story.of(BROKEN)) <= CAP

    assert story.of("one", Phase.WARM) == good, "nobody who works is removed and made again"
    assert len(good) == REPLICAS - CAP
    assert set(tries) == {"start_timeout", f"create {BROKEN}"}
    # 3000 s, a start deadline of 300 s: about ten tries each.
    assert tries["start_timeout"] <= 11 * CAP


def test_a_mended_template_takes_the_whole_pool_after_all() -> None:
    story = Story()
    story.edit(template=BROKEN)
    work(story, steps=100)
    story.edit(template="two")

    roll(story)
    story.step(lag=0)

    assert story.of("two") == story.of()
    assert story.world.pools[NAME].proven == "two"


def test_a_pool_that_grows_on_a_broken_template_grows_by_what_worked() -> None:
    story = Story()
    story.edit(template=BROKEN)
    for _ in range(10):
        story.step()
    story.edit(replicas=REPLICAS + 10)
    for _ in range(60):
        story.step()

    assert len(story.of(BROKEN)) <= 3  # the cap of 30
    assert len(story.of("one", Phase.WARM)) >= REPLICAS + 10 - 3


def test_a_roll_that_works_is_not_held_up_by_jobs() -> None:
    story = Story()
    story.edit(template="two")
    work(story, steps=40)

    assert story.of("two") == story.of()
