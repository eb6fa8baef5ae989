from __future__ import annotations

import asyncio
import gc
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from remuda.sim.loop import (
    ACTOR,
    Deadlock,
    Leak,
    Limits,
    Livelock,
    OutOfTime,
    RealIo,
    VirtualTimeLoop,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def now() -> float:
    return asyncio.get_running_loop().time()


async def sleep_for_ever(seconds: float) -> None:
    for _ in iter(int, 1):
        await asyncio.sleep(seconds)


def test_three_hours_pass_without_waiting() -> None:
    async def main() -> float:
        await asyncio.sleep(3 * 3600)
        return now()

    assert run(main) == pytest.approx(3 * 3600)


def test_timers_fire_in_time_order_and_at_one_instant_in_the_order_they_were_set() -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append(name)

        async with asyncio.TaskGroup() as group:
            for name, seconds in (("c", 3), ("a", 1), ("b", 2), ("a2", 1)):
                group.create_task(sleeper(name, seconds), name=name)
        return seen

    assert run(main) == ["a", "a2", "b", "c"]


def test_a_timeout_runs_on_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        return now()

    assert run(main) == pytest.approx(60)


def test_a_deadlock_names_each_task_and_the_line_it_waits_at() -> None:
    async def wait_for_nobody(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_nobody(asyncio.Event()), name="the forgotten one")

    with pytest.raises(Deadlock) as caught:
        run(main, seed=17)

    text = str(caught.value)
    assert "seed 17" in text
    assert "the forgotten one waits at unit/sim/test_loop.py:" in text
    assert "wait_for_nobody: await event.wait()" in text
    assert "task-1 waits at" in text


def test_tasks_that_only_wake_each_other_are_told_from_progress() -> None:
    async def main() -> None:
        await sleep_for_ever(0)

    with pytest.raises(Livelock, match="no time passed"):
        run(main, limits=Limits(steps_at_one_instant_max=100))


def test_a_run_is_bounded_in_virtual_time() -> None:
    async def main() -> None:
        await sleep_for_ever(60)

    with pytest.raises(OutOfTime, match="3600 virtual seconds"):
        run(main, limits=Limits(until_s=3600))


def test_a_run_is_bounded_in_steps() -> None:
    async def main() -> None:
        await sleep_for_ever(1e-6)

    with pytest.raises(OutOfTime, match="500 steps"):
        run(main, limits=Limits(steps_max=500))


async def _open_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def _thread() -> None:
    await asyncio.to_thread(print)


async def _process() -> None:
    await asyncio.create_subprocess_exec("true")


async def _wait_for_a_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        asyncio.get_running_loop().add_reader(ours, print)


async def _listen() -> None:
    await asyncio.start_server(print, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("reach_out", "what"),
    [
        pytest.param(_open_connection, "open a connection", id="a connection"),
        pytest.param(_thread, "run something in a thread", id="a thread"),
        pytest.param(_process, "start a process", id="a process"),
        pytest.param(_wait_for_a_socket, "wait for a file descriptor", id="a socket"),
        pytest.param(_listen, "listen on a socket", id="a server"),
    ],
)
def test_the_real_world_is_refused(
    reach_out: Callable[[], Coroutine[None, None, None]], what: str
) -> None:
    with pytest.raises(RealIo, match=what):
        run(reach_out)


def test_a_refusal_that_the_code_swallows_still_fails_the_run() -> None:
    async def main() -> None:
        try:
            await asyncio.to_thread(print)
        except RuntimeError:
            return

    with pytest.raises(Leak, match="run something in a thread"):
        run(main)


def test_being_woken_by_another_thread_is_refused() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=_call_quietly, args=(loop,))
        thread.start()
        thread.join()

    with pytest.raises(Leak, match="another thread"):
        run(main)


def _call_quietly(loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(RealIo):
        loop.call_soon_threadsafe(print)


def test_a_task_that_outlives_the_run_is_reported() -> None:
    async def main() -> None:
        asyncio.get_running_loop().create_task(asyncio.sleep(1e6), name="left behind")

    with pytest.raises(Leak, match="left behind waits at"):
        run(main)


def test_an_error_that_nobody_looks_at_is_reported() -> None:
    async def fail() -> None:
        raise ValueError("nobody looks")

    async def main() -> None:
        asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(1)
        gc.collect()

    with pytest.raises(Leak, match="nobody looks"):
        run(main)


def test_the_tasks_of_a_group_are_cancelled_in_the_order_they_were_made() -> None:
    async def main() -> list[int]:
        ended: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(number)

        async def fail() -> None:
            await asyncio.sleep(1)
            raise ValueError

        async def all_together() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(wait(number))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await all_together()
        return ended

    assert run(main) == list(range(50))


def test_a_held_actor_does_nothing_while_time_goes_on_and_then_catches_up() -> None:
    async def main() -> tuple[list[float], list[float]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        ticks: dict[str, list[float]] = {"a": [], "b": []}

        async def tick(name: str) -> None:
            ACTOR.set(name)
            for _ in range(5):
                await asyncio.sleep(10)
                ticks[name].append(round(now(), 3))

        async with asyncio.TaskGroup() as group:
            group.create_task(tick("a"))
            group.create_task(tick("b"))
            await asyncio.sleep(15)
            loop.hold("a")
            await asyncio.sleep(60)
            loop.release("a")
        return ticks["a"], ticks["b"]

    paused, other = run(main)
    assert paused == [10, 75, 85, 95, 105]
    assert other == [10, 20, 30, 40, 50]


def test_a_timeout_that_passed_during_a_pause_strikes_on_waking() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        struck: list[float] = []

        async def actor() -> None:
            ACTOR.set("a")
            try:
                async with asyncio.timeout(5):
                    await asyncio.Event().wait()
            except TimeoutError:
                struck.append(now())

        async with asyncio.TaskGroup() as group:
            group.create_task(actor())
            await asyncio.sleep(1)
            loop.hold("a")
            await asyncio.sleep(60)
            loop.release("a")
        return struck[0]

    assert run(main) == pytest.approx(61)


def test_the_garbage_collector_is_as_before_after_a_run() -> None:
    async def main() -> bool:
        return gc.isenabled()

    assert gc.isenabled()
    assert run(main) is False
    assert gc.isenabled()
