from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from remuda.control.backoff import Backoff
from remuda.control.queue import QueueSettings, WorkQueue
from remuda.model.errors import BadInput
from remuda.ports.kube import Conflict, Throttled, Unavailable
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.unit.control.fake_kube import broken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.control.queue import Handler


class Handled:
    """A handler that takes a while, and notes when it began with what."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.takes_s = takes_s
        self.log: list[tuple[float, str]] = []
        self.faults: list[Exception | None] = []
        self.look_again_after: list[timedelta | None] = []
        self.at_once = self.most_at_once = 0

    async def __call__(self, key: str) -> timedelta | None:
        self.log.append((asyncio.get_running_loop().time(), key))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.at_once -= 1
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault
        return self.look_again_after.pop(0) if self.look_again_after else None

    @property
    def keys(self) -> list[str]:
        return [key for _, key in self.log]

    @property
    def waits(self) -> list[float]:
        """Between the end of one call and the start of the next."""
        times = [time for time, _ in self.log]
        return [b - a - self.takes_s for a, b in pairwise(times)]


@asynccontextmanager
async def running(
    handler: Handler[str], settings: QueueSettings | None = None
) -> AsyncIterator[WorkQueue[str]]:
    queue = WorkQueue("test", handler, SeededIds(1, "queue"), settings or QueueSettings())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(queue.run(), name="queue")
        await asyncio.sleep(0)
        yield queue
        task.cancel()


def test_a_key_that_waits_is_there_once_and_keys_are_served_in_order() -> None:
    async def main() -> None:
        handled = Handled()
        async with running(handled, QueueSettings(workers_max=1)) as queue:
            for key in ("a", "b", "c", "b", "c"):
                queue.add(key)
            assert len(queue) == 3
            await asyncio.sleep(10)
        assert handled.keys == ["a", "b", "c"]

    run(main)


def test_a_key_touched_while_it_is_handled_is_handled_once_more_and_never_twice_at_once() -> None:
    async def main() -> None:
        handled = Handled()
        async with running(handled) as queue:
            queue.add("a")
            await asyncio.sleep(0.5)
            queue.add("a")
            queue.add("a")
            await asyncio.sleep(10)
        assert [time for time, _ in handled.log] == [0, 1]
        assert handled.most_at_once == 1

    run(main)


def test_no_more_workers_than_allowed() -> None:
    async def main() -> None:
        handled = Handled()
        async with running(handled, QueueSettings(workers_max=3)) as queue:
            for number in range(10):
                queue.add(str(number))
            await asyncio.sleep(20)
        assert handled.most_at_once == 3
        assert len(handled.log) == 10

    run(main)


def test_what_fails_is_tried_again_with_growing_waits_that_start_over_after_a_success() -> None:
    async def main() -> None:
        handled = Handled()
        handled.faults = [broken(Unavailable)] * 4 + [None, broken(Unavailable), None]
        settings = QueueSettings(backoff=Backoff(first_s=1, longest_s=5))
        async with running(handled, settings) as queue:
            queue.add("a")
            await asyncio.sleep(60)
            queue.add("a")
            await asyncio.sleep(60)
        ranges = [(0.5, 1), (1, 2), (2, 4), (2.5, 5), (20, 60), (0.5, 1)]
        assert len(handled.waits) == len(ranges)
        assert all(
            low <= wait < high for wait, (low, high) in zip(handled.waits, ranges, strict=True)
        )

    run(main)


def test_one_keys_bug_stops_no_other_key() -> None:
    async def main() -> None:
        handled = Handled()
        handled.faults = [ZeroDivisionError("a bug")]
        async with running(handled, QueueSettings(workers_max=1)) as queue:
            queue.add("a")
            queue.add("b")
            await asyncio.sleep(10)
        assert handled.keys == ["a", "b", "a"]

    run(main)


def test_a_handler_that_gives_itself_up_is_tried_again_with_growing_waits() -> None:
    async def main() -> None:
        began: list[float] = []

        async def awaits_what_was_cancelled(key: str) -> None:
            del key
            loop = asyncio.get_running_loop()
            began.append(loop.time())
            given_up = loop.create_future()
            given_up.cancel()
            await given_up

        async with running(awaits_what_was_cancelled) as queue:
            queue.add("a")
            await asyncio.sleep(60)
        assert 4 < len(began) < 12

    run(main)


def test_what_only_a_person_can_mend_waits_for_the_next_touch() -> None:
    async def main() -> None:
        handled = Handled()
        handled.faults = [BadInput("The spec", why="it is wrong", fix="Mend it")]
        async with running(handled) as queue:
            queue.add("a")
            await asyncio.sleep(3600)
            assert handled.keys == ["a"]
            queue.add("a")
            await asyncio.sleep(10)
            assert handled.keys == ["a", "a"]

    run(main)


def test_a_server_that_says_how_long_to_wait_is_obeyed() -> None:
    async def main() -> None:
        handled = Handled()
        handled.faults = [Throttled("It", why="too much", fix="Wait", retry_after_s=30)]
        async with running(handled) as queue:
            queue.add("a")
            await asyncio.sleep(60)
        assert handled.waits == [pytest.approx(30)]

    run(main)


def test_a_conflict_is_looked_at_again() -> None:
    async def main() -> None:
        handled = Handled()
        handled.faults = [broken(Conflict)]
        async with running(handled) as queue:
            queue.add("a")
            await asyncio.sleep(60)
        assert handled.keys == ["a", "a"]

    run(main)


def test_a_handler_says_when_to_look_again_and_an_earlier_look_replaces_it() -> None:
    async def main() -> None:
        handled = Handled()
        handled.look_again_after = [timedelta(seconds=100), timedelta(seconds=100), None]
        async with running(handled) as queue:
            queue.add("a")
            await asyncio.sleep(50)
            queue.add("a")
            await asyncio.sleep(1000)
        assert [time for time, _ in handled.log] == [0, 50, 151]

    run(main)


def test_of_two_later_times_the_earlier_counts() -> None:
    async def main() -> None:
        handled = Handled()
        async with running(handled) as queue:
            queue.add_after("a", 20)
            queue.add_after("a", 10)
            queue.add_after("a", 30)
            await asyncio.sleep(100)
        assert handled.log == [(10, "a")]

    run(main)


def test_a_drain_waits_for_what_runs_and_starts_nothing_more() -> None:
    async def main() -> None:
        handled = Handled()
        async with running(handled, QueueSettings(workers_max=1)) as queue:
            queue.add("a")
            queue.add("b")
            await asyncio.sleep(0.5)
            await queue.drain()
            assert asyncio.get_running_loop().time() == 1
            queue.add("c")
            await asyncio.sleep(10)
        assert handled.keys == ["a"]

    run(main)


def test_a_cancelled_queue_cancels_its_handlers_and_looks_again_when_it_runs_again() -> None:
    async def main() -> None:
        handled = Handled()
        queue = WorkQueue("test", handled, SeededIds(1, "queue"))
        queue.add("a")
        queue.add_after("b", 3600)
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(queue.run(), name="queue")
                await asyncio.sleep(0.5)
                task.cancel()
            assert handled.at_once == 0
        # b, which was to be looked at later, is not forgotten either.
        assert handled.keys == ["a", "a", "b"]

    run(main)
