from __future__ import annotations

import asyncio

import pytest

from remuda.control.tasks import run_forever
from remuda.sim.loop import run


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
