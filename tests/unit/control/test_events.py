from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from remuda.control.events import EventRecorder, EventSettings
from remuda.kube.core import NODE, POD, Event, Node, Pod
from remuda.kube.meta import ObjectMeta
from remuda.ports.kube import Throttled, Unavailable
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.unit.control.fake_kube import FakeKube, broken, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POD_A, POD_B = (Pod(metadata=named(name)) for name in ("a", "b"))


@asynccontextmanager
async def recording(
    kube: FakeKube, settings: EventSettings | None = None
) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(
        kube,
        settings or EventSettings(component="test", instance="one"),
        clock=SimClock(asyncio.get_running_loop()),
        ids=SeededIds(1, "events"),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run(), name="recorder")
        yield recorder
        task.cancel()


def written(kube: FakeKube) -> list[Event]:
    return list(kube.objects.values())


def test_an_event_says_about_what_by_whom_and_why() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with recording(kube) as recorder:
            recorder.record(POD, POD_A, "RunnerReaped", "The job is done", warning=True)
            await asyncio.sleep(1)
        (event,) = written(kube)
        assert event.namespace == "ci"
        assert event.name.startswith("a.")
        assert event.involved_object.kind == "Pod"
        assert event.involved_object.api_version == "v1"
        assert (event.type, event.reason, event.message) == (
            "Warning",
            "RunnerReaped",
            "The job is done",
        )
        assert (event.source.component, event.reporting_instance, event.count) == ("test", "one", 1)

    run(main)


def test_events_about_objects_without_a_namespace_live_in_default() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with recording(kube) as recorder:
            recorder.record(NODE, Node(metadata=ObjectMeta(name="mini-1")), "Ready", "It is")
            await asyncio.sleep(1)
        assert [event.namespace for event in written(kube)] == ["default"]

    run(main)


def test_the_same_thing_said_again_counts_up() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with recording(kube) as recorder:
            for _ in range(3):
                recorder.record(POD, POD_A, "Waiting", "for a host")
                recorder.record(POD, POD_A, "Waiting", "for a host")
                await asyncio.sleep(10)
            recorder.record(POD, POD_A, "Waiting", "for an image")
            await asyncio.sleep(1)
        assert [(event.message, event.count) for event in written(kube)] == [
            ("for a host", 6),
            ("for an image", 1),
        ]
        first, last = written(kube)[0].first_timestamp, written(kube)[0].last_timestamp
        assert first is not None
        assert last is not None
        assert (last - first).total_seconds() == 20

    run(main)


def test_the_same_thing_said_much_later_is_news() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with recording(kube) as recorder:
            for _ in range(2):
                recorder.record(POD, POD_A, "Waiting", "for a host")
                await asyncio.sleep(601)
        assert [event.count for event in written(kube)] == [1, 1]

    run(main)


def test_what_is_said_over_and_over_stays_one_event() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with recording(kube) as recorder:
            for _ in range(4):
                recorder.record(POD, POD_A, "Waiting", "for a host")
                await asyncio.sleep(500)
        assert [event.count for event in written(kube)] == [4]

    run(main)


def test_a_long_silence_saves_up_no_more_than_a_burst() -> None:
    async def main() -> None:
        kube = FakeKube()
        settings = EventSettings(component="test", burst=5, refill_s=60)
        async with recording(kube, settings) as recorder:
            recorder.record(POD, POD_A, "Flapping", "for the first time")
            await asyncio.sleep(7200)
            for number in range(20):
                recorder.record(POD, POD_A, "Flapping", f"for the {number}th time")
            await asyncio.sleep(1)
        assert len(written(kube)) == 6

    run(main)


def test_an_event_that_the_server_has_expired_is_said_anew() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with recording(kube) as recorder:
            recorder.record(POD, POD_A, "Waiting", "for a host")
            await asyncio.sleep(1)
            kube.objects.clear()
            recorder.record(POD, POD_A, "Waiting", "for a host")
            await asyncio.sleep(1)
        assert [event.count for event in written(kube)] == [1]
        assert recorder.dropped == 0

    run(main)


def test_one_object_cannot_flood_the_others() -> None:
    async def main() -> None:
        kube = FakeKube()
        settings = EventSettings(component="test", burst=5, refill_s=60)
        async with recording(kube, settings) as recorder:
            for number in range(100):
                recorder.record(POD, POD_A, "Flapping", f"for the {number}th time")
            recorder.record(POD, POD_B, "Ready", "It is")
            await asyncio.sleep(1)
            assert len(written(kube)) == 6
            assert recorder.dropped == 95
            await asyncio.sleep(119)
            for number in range(100, 110):
                recorder.record(POD, POD_A, "Flapping", f"for the {number}th time")
            await asyncio.sleep(1)
            assert len(written(kube)) == 8

    run(main)


def test_more_than_can_wait_is_dropped_and_counted_and_the_caller_never_waits() -> None:
    async def main() -> None:
        kube = FakeKube()
        kube.delay_s = 3600  # hangs: each write ends at its deadline
        settings = EventSettings(component="test", waiting_max=10)
        async with recording(kube, settings) as recorder:
            for number in range(30):
                pod = Pod(metadata=named(f"p{number}"))
                recorder.record(POD, pod, "Ready", "It is")
            assert asyncio.get_running_loop().time() == 0
            assert recorder.dropped == 20
            await asyncio.sleep(200)
            assert recorder.dropped == 30
            kube.delay_s = 0
            recorder.record(POD, POD_B, "Ready", "It is")
            await asyncio.sleep(1)
        assert len(written(kube)) == 1

    run(main)


def test_a_server_that_says_how_long_to_wait_is_obeyed_and_nothing_is_lost() -> None:
    async def main() -> None:
        kube = FakeKube()
        slow_down = Throttled("It", why="the test wants it so", fix="Wait", retry_after_s=7.0)
        kube.faults["create"] = [slow_down, slow_down]
        async with recording(kube) as recorder:
            recorder.record(POD, POD_A, "Ready", "It is")
            recorder.record(POD, POD_B, "Ready", "It is")
            await asyncio.sleep(6)
            recorder.record(POD, POD_A, "Ready", "It is")
            assert kube.calls == ["create"]
            await asyncio.sleep(10)
        seen = [(event.involved_object.name, event.count) for event in written(kube)]
        assert seen == [("a", 2), ("b", 1)]
        assert recorder.dropped == 0

    run(main)


def test_what_was_being_written_when_the_process_ended_is_written_by_the_last_flush() -> None:
    async def main() -> None:
        kube = FakeKube()
        kube.delay_s = 5.0
        async with recording(kube) as recorder:
            recorder.record(POD, POD_A, "Stopped", "It was told to")
            await asyncio.sleep(1)
        await recorder.flush()
        assert [event.reason for event in written(kube)] == ["Stopped"]

    run(main)


def test_a_server_that_refuses_costs_the_event_and_nothing_else() -> None:
    async def main() -> None:
        kube = FakeKube()
        kube.faults["create"] = [broken(Unavailable)]
        async with recording(kube) as recorder:
            recorder.record(POD, POD_A, "Ready", "It is")
            recorder.record(POD, POD_B, "Ready", "It is")
            await asyncio.sleep(1)
        assert [event.involved_object.name for event in written(kube)] == ["b"]
        assert recorder.dropped == 1

    run(main)


@pytest.mark.parametrize("letter", ["x", "é", "💡"])
def test_a_long_message_is_cut_at_a_whole_letter(letter: str) -> None:
    async def main() -> None:
        kube = FakeKube()
        async with recording(kube) as recorder:
            recorder.record(POD, POD_A, "Long", letter * 2000)
            await asyncio.sleep(1)
        (event,) = written(kube)
        assert 1018 <= len(event.message.encode()) <= 1024
        assert event.message == letter * (len(event.message) - 1) + "…"

    run(main)
