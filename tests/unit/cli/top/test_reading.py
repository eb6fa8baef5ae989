"""Looking at a fleet on virtual time: what happens wakes it, and a server that goes comes back by itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock
from remuda.cli.top.reading import BACK, EVENTS_MAX, Reader, read
from remuda.model.job import JobState
from remuda.ports.api import ApiUnavailable
from remuda.sim.clock import SimClock
from remuda.sim.loop import run
from tests.support.eventually import within
from tests.support.memory_api import MemoryApi, a_job, a_pool, an_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.cli.top.decide.sight import Sight
    from remuda.ports.api import Api

EVERY_S = 10.0


@asynccontextmanager
async def looking(api: MemoryApi) -> AsyncIterator[tuple[Reader, list[Sight]]]:
    """Look at a fleet for as long as the test does something."""
    served: Api = api
    reader = Reader(
        served, SimClock(asyncio.get_running_loop()), address="http://here", every_s=EVERY_S
    )
    seen: list[Sight] = []
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.run(seen.append))
        yield reader, seen
        task.cancel()


def test_a_fleet_is_looked_at_now_and_then() -> None:
    async def story() -> None:
        api = MemoryApi(pools_=(a_pool("linux", warm=1),))
        async with looking(api) as (_, seen):
            await asyncio.sleep(5 * EVERY_S)
        assert 4 <= api.looks <= 6
        assert seen[-1].fleet is not None
        assert [pool.name for pool in seen[-1].fleet.pools] == ["linux"]
        assert seen[-1].trouble == ""

    run(story)


def test_what_happens_is_seen_at_once_and_in_order() -> None:
    async def story() -> None:
        api = MemoryApi(events_=[an_event(1), an_event(2)])
        async with looking(api) as (_, seen):
            await asyncio.sleep(1)
            before = api.looks
            api.happen(an_event(3, "completed"))
            await asyncio.sleep(1)
            assert api.looks == before + 1
            assert [event.number for event in seen[-1].events] == [1, 2, 3]

    run(story)


def test_a_storm_of_events_is_no_storm_of_looks() -> None:
    async def story() -> None:
        api = MemoryApi()
        async with looking(api) as (_, seen):
            await asyncio.sleep(1)
            for number in range(1, 2001):
                api.happen(an_event(number))
                await asyncio.sleep(0.001)
            assert api.looks < 12
            await asyncio.sleep(1)
        assert len(seen[-1].events) == EVENTS_MAX
        assert seen[-1].events[-1].number == 2000

    run(story)


def test_it_begins_with_the_near_past_only() -> None:
    async def story() -> None:
        api = MemoryApi(events_=[an_event(number) for number in range(1, 1001)])
        async with looking(api) as (_, seen):
            await asyncio.sleep(1)
        assert [event.number for event in seen[-1].events] == list(range(1001 - BACK, 1001))

    run(story)


def test_a_server_that_goes_is_said_to_be_away_and_comes_back_by_itself() -> None:
    async def story() -> None:
        api = MemoryApi(pools_=(a_pool("linux", warm=1),))
        async with looking(api) as (reader, seen):
            await asyncio.sleep(1)
            api.is_down = True
            await asyncio.sleep(3 * EVERY_S)
            lost = seen[-1]
            assert "nobody is there" in lost.trouble
            assert lost.fleet is not None, "what was seen last stays"
            assert lost.is_stale(reader.sight.seen_at)
            api.pools_ = (a_pool("linux", warm=9),)
            api.is_down = False
            await asyncio.sleep(2 * EVERY_S)
            assert seen[-1].trouble == ""
            assert seen[-1].fleet is not None
            assert seen[-1].fleet.pools[0].runners.warm == 9

    run(story)


def test_a_server_that_is_away_from_the_beginning_is_waited_for() -> None:
    async def story() -> None:
        api = MemoryApi(is_down=True, events_=[an_event(1)])
        async with looking(api) as (_, seen):
            await asyncio.sleep(2 * EVERY_S)
            assert seen[-1].fleet is None
            assert seen[-1].trouble
            api.is_down = False
            await asyncio.sleep(2 * EVERY_S)
            assert seen[-1].fleet is not None
            assert [event.number for event in seen[-1].events] == [1]

    run(story)


def test_events_that_cannot_be_followed_are_asked_for() -> None:
    async def story() -> None:
        api = MemoryApi(no_stream=True, events_=[an_event(1)])
        async with looking(api) as (_, seen):
            await asyncio.sleep(2 * EVERY_S)
            api.happen(an_event(2))
            await asyncio.sleep(2 * EVERY_S)
        assert seen[-1].polls
        assert [event.number for event in seen[-1].events] == [1, 2]

    run(story)


def test_who_asks_for_it_looks_again_now() -> None:
    async def story() -> None:
        api = MemoryApi()
        async with looking(api) as (reader, _):
            await asyncio.sleep(1)
            before = api.looks
            reader.wake()
            await asyncio.sleep(1)
            assert api.looks == before + 1

    run(story)


def test_a_job_that_ends_between_two_questions_is_shown_once_with_its_end() -> None:
    async def story() -> None:
        api = MemoryApi(
            jobs_=(
                a_job("one", JobState.RUNNING),
                a_job("one", JobState.COMPLETED, conclusion="success"),
            )
        )
        found = await read(api)
        assert [(job.id, job.state) for job in found.jobs] == [("one", JobState.COMPLETED)]

    run(story)


def test_one_error_of_several_is_told() -> None:
    async def story() -> None:
        with pytest.raises(ApiUnavailable, match="could not be listed"):
            await read(MemoryApi(is_down=True))

    run(story)


@pytest.mark.parametrize("turns", range(20))
async def test_who_looks_again_and_again_ends_when_told_to_although_every_question_fails(
    turns: int,
) -> None:
    api = MemoryApi()
    api.is_down = True
    served: Api = api
    reader = Reader(served, SystemClock(), address="http://here", every_s=EVERY_S)

    enough = asyncio.Event()  # so that one that does not hear it fails, and does not hang

    async def look() -> None:
        while not enough.is_set():
            await reader.look()
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        looking = group.create_task(look(), name="looks")
        for _ in range(turns):
            await asyncio.sleep(0)
        looking.cancel()
        await asyncio.wait({looking}, timeout=1)
        enough.set()
        await within(asyncio.wait({looking}))
        assert looking.cancelled()
