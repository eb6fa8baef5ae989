from __future__ import annotations

import asyncio
import contextlib

import pytest

from remuda.control.tasks import run_forever, ungrouped
from remuda.sim.loop import run
from tests.support.eventually import within


def test_loops_run_until_told_to_stop_and_are_waited_for() -> None:
    async def main() -> None:
        stop, ended = asyncio.Event(), list[str]()

        async def loop() -> None:
            try:
                await asyncio.sleep(1e6)
            finally:
                await asyncio.sleep(3)
                task = asyncio.current_task()
                assert task is not None
                ended.append(task.get_name())

        asyncio.get_running_loop().call_later(10, stop.set)
        await run_forever({"renew": loop, "sweep": loop}, stop)
        assert ended == ["renew", "sweep"]
        assert asyncio.get_running_loop().time() == 13

    run(main)


def test_one_failed_loop_ends_all() -> None:
    async def main() -> None:
        async def sleeps() -> None:
            await asyncio.sleep(1e6)

        async def fails() -> None:
            await asyncio.sleep(1)
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup) as caught:
            await run_forever({"sleeps": sleeps, "fails": fails}, asyncio.Event())
        assert caught.group_contains(ZeroDivisionError)
        assert asyncio.get_running_loop().time() == 1

    run(main)


def test_a_loop_that_ends_by_itself_is_a_fault() -> None:
    async def main() -> None:
        async def ends() -> None:
            await asyncio.sleep(1)

        with pytest.raises(ExceptionGroup) as caught:
            await run_forever({"sweep": ends}, asyncio.Event())
        assert caught.group_contains(RuntimeError, match="The sweep loop ended by itself")

    run(main)


class DownError(Exception):
    """What a task of a group fails with."""


async def _group(*errors: Exception, turns: int = 0) -> None:
    """Fail with all of these after some turns of the loop."""

    async def fail(error: Exception) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise error

    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(fail(error), name=str(error))


async def _try_again(turns: int, enough: asyncio.Event) -> None:
    while not enough.is_set():
        with contextlib.suppress(DownError):
            await ungrouped(_group(DownError(), DownError(), turns=turns))


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("after", range(12))
async def test_who_tries_again_hears_of_its_end_in_any_moment(turns: int, after: int) -> None:
    enough = asyncio.Event()  # so that one that does not hear it fails, and does not hang
    async with asyncio.TaskGroup() as group:
        trying = group.create_task(_try_again(turns, enough), name="tries")
        for _ in range(after):
            await asyncio.sleep(0)
        trying.cancel()
        await asyncio.wait({trying}, timeout=1)
        enough.set()
        await within(asyncio.wait({trying}))
        assert trying.cancelled()


async def test_the_first_error_of_a_group_is_raised_as_it_is() -> None:
    with pytest.raises(DownError):
        await ungrouped(_group(DownError(), ValueError()))
    with pytest.raises(DownError):
        await ungrouped(_group(ExceptionGroup("of a group within", [DownError()])))


async def test_a_deadline_that_comes_with_an_error_is_a_deadline() -> None:
    async def late() -> None:
        async with asyncio.timeout(None) as deadline:
            deadline.reschedule(asyncio.get_running_loop().time())
            await ungrouped(_group(DownError(), turns=1))

    with pytest.raises(TimeoutError):
        await late()
