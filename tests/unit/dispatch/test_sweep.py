"""What finds jobs that no message announced."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from remuda.kube.runner_pool import Forks
from remuda.model.job import JobState
from remuda.ports.forge import ForgeUnavailable
from remuda.sim.jobs.locks import MemoryLocks
from tests.unit.dispatch.mailroom import Mailroom, a_pool, news, running, story

DOWN = ForgeUnavailable("No answer", why="it is down", fix="Wait")


@story()
async def test_a_job_that_no_message_announced_is_found_within_one_period(room: Mailroom) -> None:
    async with running(_sweeping(room)):
        await room.clock.sleep(60)
        room.hub.queued.append(news())
        await room.clock.sleep(room.settings.intake.sweep_s * 1.1)
        assert await room.state() is JobState.QUEUED
        await room.clock.sleep(600)
    assert room.counted("recoveries_total", kind="queued_found") == 1


@story()
async def test_repositories_with_jobs_lately_are_looked_at_first(room: Mailroom) -> None:
    old = room.settings.intake.active_for.total_seconds() + 60
    await room.apply(news(number=1, repository="acme/old"))
    await room.clock.sleep(old)
    await room.apply(news(number=2, repository="acme/busy", queued_at=None))
    await room.clock.sleep(5)
    await room.apply(news(number=3, repository="acme/new", queued_at=None))
    await room.apply(news(number=4, repository="acme/busy", queued_at=None))

    await room.new_sweeps().sweep()

    [first] = room.hub.sweeps
    assert first == ("acme/busy", "acme/new")


@story()
async def test_one_busy_repository_does_not_hide_the_others(room: Mailroom) -> None:
    await room.apply(news(number=1, repository="acme/quiet"))
    for number in range(2, 600):
        await room.apply(news(number=number, queued_at=room.at(0.001 * number)))

    await room.new_sweeps().sweep()

    assert "acme/quiet" in room.hub.sweeps[0]


@story()
async def test_no_more_repositories_are_named_than_a_sweep_looks_at(room: Mailroom) -> None:
    for number in range(100):
        await room.apply(news(number=number, repository=f"acme/r{number}"))

    await room.new_sweeps().sweep()

    assert len(room.hub.sweeps[0]) == room.settings.intake.sweep_repositories_max


@story(a_pool(forks=Forks.DENY))
async def test_one_job_that_fails_does_not_keep_the_others_from_being_taken_in(
    room: Mailroom,
) -> None:
    room.hub.forks[9001] = DOWN
    room.hub.queued = [news(), *(news(number=n, tenant=f"t{n}") for n in range(2, 30))]

    assert await room.new_sweeps().sweep() == 28

    assert await room.state(1) is None
    assert room.counted("worker_failures_total", worker="sweep") == 1


@story(a_pool(forks=Forks.DENY))
async def test_the_forge_is_asked_once_about_a_fork_that_each_sweep_finds(room: Mailroom) -> None:
    room.hub.forks[9001] = True
    room.hub.queued = [news()]
    async with running(_sweeping(room)):
        await room.clock.sleep(300)
    assert room.hub.asked == [9001]
    assert await room.jobs() == []


@story()
async def test_the_sweeps_go_on_after_failures_of_every_kind(room: Mailroom) -> None:
    async with running(_sweeping(room)):
        for error in (DOWN, TimeoutError(), ZeroDivisionError("a bug of ours")):
            room.hub.sweep_fails = error
            await room.clock.sleep(60)
        room.hub.sweep_fails = None
        room.hub.queued.append(news())
        await room.clock.sleep(30)
        assert await room.state() is JobState.QUEUED
    assert room.counted("worker_failures_total", worker="sweep") >= 9


@story()
async def test_a_forge_that_hangs_holds_a_sweep_only_so_long(room: Mailroom) -> None:
    hub, calls = room.hub, 0
    sweep = hub.sweep

    async def hanging_once(first: object, *, at_most: int) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()
        return await sweep(first, at_most=at_most)  # type: ignore[arg-type] # passed on

    hub.sweep = hanging_once  # type: ignore[method-assign,assignment] # a forge that hangs
    hub.queued.append(news())
    async with running(_sweeping(room)):
        await room.clock.sleep(room.settings.intake.sweep_deadline_s + 2)
        assert await room.state() is JobState.QUEUED


@story()
async def test_only_one_replica_sweeps_and_another_takes_over(room: Mailroom) -> None:
    locks = [MemoryLocks(room.tables) for _ in range(2)]
    first, second = (room.new_sweeps(one).loops()["sweep"] for one in locks)
    async with running(_of(second)):
        async with running(_of(first)):
            await room.clock.sleep(600)
            assert 45 <= len(room.hub.sweeps) <= 56
            locks[1].lose()
            await room.clock.sleep(60)
        room.hub.sweeps.clear()
        await room.clock.sleep(600)
        assert 45 <= len(room.hub.sweeps) <= 56


@story()
async def test_lost_messages_are_asked_for_again_and_counted(room: Mailroom) -> None:
    room.hub.redelivers = 3
    async with running(_of(room.new_sweeps().loops()["redelivery"])):
        await room.clock.sleep(room.settings.intake.redeliver_s * 2.5)
    assert room.hub.redeliveries == 3
    assert room.counted("recoveries_total", kind="redelivered") == 9


@story()
async def test_a_long_sweep_is_not_followed_by_another_at_once(room: Mailroom) -> None:
    slow = replace(room.settings.intake, sweep_s=0.1)
    room.settings = replace(room.settings, intake=slow)
    async with running(_sweeping(room)):
        await room.clock.sleep(10)
    assert len(room.hub.sweeps) <= 11


async def _sweeping(room: Mailroom) -> None:
    await room.new_sweeps().loops()["sweep"]()


async def _of(loop: object) -> None:
    assert callable(loop)
    await loop()
