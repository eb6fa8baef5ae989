from __future__ import annotations

import asyncio

import pytest

from remuda.control.health import Health
from remuda.sim.clock import SimClock
from remuda.sim.loop import run


def on_virtual_time() -> tuple[Health, SimClock]:
    clock = SimClock(asyncio.get_running_loop())
    return Health(clock), clock


def test_a_loop_that_stopped_is_named_with_how_long_it_has_been_silent() -> None:
    async def story() -> tuple[str, ...]:
        health, clock = on_virtual_time()
        health.register("pool", 90)
        health.register("autoscaler", 30)
        await clock.sleep(60)
        health.beat("autoscaler")
        await clock.sleep(29)
        assert health.problems(clock.monotonic()) == ()
        await clock.sleep(6)
        return health.problems(clock.monotonic())

    assert run(story) == (
        "the autoscaler loop has not run for 35 s (it should at least every 30 s)",
        "the pool loop has not run for 95 s (it should at least every 90 s)",
    )


def test_a_loop_is_in_time_up_to_its_limit() -> None:
    async def story() -> None:
        health, clock = on_virtual_time()
        health.register("pool", 90)
        await clock.sleep(90)
        assert health.problems(clock.monotonic()) == ()

    run(story)


def test_a_loop_that_waits_for_long_is_alive_the_whole_time() -> None:
    async def story() -> list[tuple[str, ...]]:
        health, clock = on_virtual_time()
        health.register("standby", 10)
        seen = []
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(health.pause("standby", 100), name="standby")
            while not waiting.done():
                seen.append(health.problems(clock.monotonic()))
                await clock.sleep(1)
        assert clock.monotonic() == pytest.approx(100, abs=1.5)
        return seen

    seen = run(story)
    assert len(seen) >= 100
    assert set(seen) == {()}


def test_a_loop_that_ended_on_purpose_is_not_missed() -> None:
    async def story() -> None:
        health, clock = on_virtual_time()
        with health.watched("reign", 5):
            await clock.sleep(6)
            assert len(health.problems(clock.monotonic())) == 1
        assert health.problems(clock.monotonic()) == ()

    run(story)


def test_a_beat_of_a_loop_that_nobody_registered_is_our_own_bug() -> None:
    async def story() -> None:
        health, _ = on_virtual_time()
        health.beat("pool")

    with pytest.raises(AssertionError, match="never registered"):
        run(story)
