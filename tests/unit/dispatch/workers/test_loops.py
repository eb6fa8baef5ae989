"""The loops as a replica runs them: alone, again and again, whatever a turn runs into."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from remuda.dispatch.workers import ALONE, recovery_loops
from remuda.model.job import JobState
from remuda.sim.jobs.locks import MemoryLocks
from tests.unit.dispatch.yard import QUEUED, runs_on, story
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from structlog.typing import EventDict

    from tests.unit.dispatch.yard import Yard


@pytest.fixture(autouse=True)
def said(request: pytest.FixtureRequest) -> Iterator[list[EventDict]]:
    """Keep what is logged: a bug that the loop's edge caught must not pass for a quiet turn."""
    with capture_logs() as logged:
        yield logged
    broke = [entry for entry in logged if entry["event"] == "recovery turn broke"]
    assert bool(broke) is ("bug" in request.node.name), broke


def start(yard: Yard, name: str = "one") -> MemoryLocks:
    """Start a replica."""
    locks = MemoryLocks(yard.tables)
    parts = replace(yard.parts, locks=locks)
    for worker, loop in recovery_loops(parts).items():
        yard.start(_awaited(loop), f"{name} {worker}")
    return locks


async def _awaited(loop: object) -> None:
    await loop()  # type: ignore[operator]


async def until_queued(yard: Yard, number: int) -> float:
    since = yard.clock.monotonic()
    while yard.state(number) is not JobState.QUEUED:
        await yard.later(0.5)
        assert yard.clock.monotonic() - since < 600, "never"
    return yard.clock.monotonic() - since


@story()
async def test_a_claim_that_nothing_came_of_is_back_within_a_minute(yard: Yard) -> None:
    start(yard)
    await yard.later(7)
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.stamp("p", await yard.take("p"))

    assert await until_queued(yard, 1) <= 60


@story()
async def test_a_runner_that_never_registered_gives_its_job_back_within_a_minute(
    yard: Yard,
) -> None:
    start(yard)
    await yard.later(7)
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.deliver("p")

    assert await until_queued(yard, 1) <= 60


@pytest.mark.parametrize("proven", [True, False], ids=["it ran", "nobody said that it ran"])
@pytest.mark.parametrize("frozen", [True, False], ids=["our view is frozen", "our view is fresh"])
def test_a_runner_that_died_gives_its_job_back_within_a_minute_of_the_forges_word(
    *, proven: bool, frozen: bool
) -> None:
    @story()
    async def play(yard: Yard) -> None:
        start(yard)
        await yard.warm_pod("other")
        await yard.queue(1)
        await yard.warm_pod("p")
        await yard.deliver("p")
        if proven:
            await yard.executes(1, "r-p")
        yard.forge.say(1, runs_on("r-p"))
        await yard.later(400)
        yard.tap.frozen = "/pods" if frozen else ""
        await yard.remove("p")
        await yard.later(200)
        assert yard.state(1) is JobState.RUNNING
        assert yard.tables.claims == {}, "its room is free all the same"

        yard.forge.say(1, QUEUED)
        assert await until_queued(yard, 1) <= 60

    play()


@story()
async def test_a_replica_that_loses_its_locks_loses_what_it_saw_and_nothing_else(
    yard: Yard,
) -> None:
    locks = start(yard)
    start(yard, "two")
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.stamp("p", await yard.take("p"))
    await yard.later(25)
    locks.lose()
    await yard.later(10)
    assert yard.state(1) is JobState.CLAIMED, "whoever took over has seen it for a moment only"

    assert await until_queued(yard, 1) <= 60


@story()
async def test_workers_turn_on_after_everything_failed_for_a_while(yard: Yard) -> None:
    start(yard)
    yard.views.fails = "claims"
    yard.tap.hurts.append(Hurt("GET", "dropped", times=50))
    await yard.later(120)
    failures = yard.metric("remuda_worker_failures_total", worker="stale-claims")
    assert failures is not None
    assert failures > 5
    assert yard.parts.health.problems(yard.clock.monotonic()) == ()

    yard.views.fails = ""
    yard.tap.hurts.clear()
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.take("p")
    assert await until_queued(yard, 1) <= 60


@story()
async def test_a_bug_in_one_worker_stops_neither_it_nor_the_others(yard: Yard) -> None:
    broken = 3

    async def claims(**_how: object) -> object:
        nonlocal broken
        if broken:
            broken -= 1
            raise ZeroDivisionError
        return await type(yard.views).claims(yard.views, **_how)

    yard.views.claims = claims  # type: ignore[method-assign,assignment]
    start(yard)
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.take("p")

    assert await until_queued(yard, 1) <= 90


@story()
async def test_every_worker_beats(yard: Yard) -> None:
    start(yard)
    await yard.later(3 * 3600)

    assert yard.parts.health.problems(yard.clock.monotonic()) == ()
    assert set(ALONE) | {"gauges"} == set(recovery_loops(yard.parts))
