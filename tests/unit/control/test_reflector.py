from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from remuda.control.cache import Key, by_label, by_node, by_owner_uid
from remuda.control.reflector import Reflector, ReflectorSettings, Stream
from remuda.kube.core import POD, Pod, PodSpec
from remuda.ports.kube import Expired, Query, TimedOut, Unavailable
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.unit.control.fake_kube import FakeKube, broken, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MINUTE = 60.0


def a_pod(name: str, *, pool: str = "mac", node: str = "") -> Pod:
    return Pod(metadata=named(name, pool=pool), spec=PodSpec(node_name=node))


@asynccontextmanager
async def following(
    kube: FakeKube, settings: ReflectorSettings | None = None
) -> AsyncIterator[tuple[Reflector[Pod], list[str]]]:
    """Run a reflector and note every key that its handler is told."""
    clock = SimClock(asyncio.get_running_loop())
    reflector = Reflector(
        kube,
        POD,
        Query(namespace="ci"),
        clock=clock,
        ids=SeededIds(1, "reflector"),
        settings=settings or ReflectorSettings(),
    )
    reflector.index("pool", by_label("pool"))
    reflector.index("node", by_node)
    reflector.index("owner", by_owner_uid)
    told: list[str] = []
    reflector.on_change(lambda key: told.append(key.name))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflector.run(), name="reflector")
        await reflector.wait_synced()
        yield reflector, told
        task.cancel()


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [pod.name for pod in pods]


@pytest.mark.parametrize("stream", list(Stream))
def test_what_is_there_and_what_comes_is_seen_and_told(stream: Stream) -> None:
    async def main() -> None:
        kube = FakeKube()
        await kube.put(a_pod("b"))
        await kube.put(a_pod("a", pool="linux"))
        async with following(kube, ReflectorSettings(stream=stream)) as (reflector, told):
            assert names(reflector.all()) == ["a", "b"]
            assert told == ["a", "b"]
            await kube.put(a_pod("c", node="mini-1"))
            await kube.put(a_pod("b", pool="linux"))
            await kube.remove(Key("ci", "a"))
            await asyncio.sleep(1)
            assert told == ["a", "b", "c", "b", "a"]
            assert names(reflector.all()) == ["b", "c"]
            assert names(reflector.found("pool", "linux")) == ["b"]
            assert names(reflector.found("pool", "mac")) == ["c"]
            assert names(reflector.found("node", "mini-1")) == ["c"]
            assert reflector.get("a", namespace="ci") is None

    run(main)


def test_news_that_comes_with_the_end_of_a_stream_is_not_lost() -> None:
    async def main() -> None:
        kube = FakeKube()
        await kube.put(a_pod("a"))
        kube.delay_s = 1.0
        asyncio.get_running_loop().call_later(1.5, kube.put_now, a_pod("b"))
        async with following(kube, ReflectorSettings(stream=Stream.ALWAYS)) as (reflector, told):
            await asyncio.sleep(10)
            assert names(reflector.all()) == ["a", "b"]
            assert told == ["a", "b"]

    run(main)


def test_nothing_is_synced_before_the_first_list_is_complete() -> None:
    async def main() -> None:
        kube = FakeKube()
        await kube.put(a_pod("a"))
        kube.faults["mid-stream"] = [broken(Unavailable)]
        clock = SimClock(asyncio.get_running_loop())
        settings = ReflectorSettings(stream=Stream.ALWAYS)
        reflector = Reflector(kube, POD, clock=clock, ids=SeededIds(1, "r"), settings=settings)
        assert reflector.age_s == float("inf")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run(), name="reflector")
            await asyncio.sleep(0.1)
            assert not reflector.synced
            assert reflector.all() == ()
            await reflector.wait_synced()
            assert names(reflector.all()) == ["a"]
            task.cancel()

    run(main)


def test_a_server_that_refuses_streams_is_asked_for_pages_and_remembered() -> None:
    async def main() -> None:
        kube = FakeKube()
        kube.streams = False
        settings = ReflectorSettings(stream=Stream.ALWAYS, relist_s=MINUTE)
        async with following(kube, settings):
            await asyncio.sleep(5 * MINUTE)
        assert kube.calls.count("stream") == 1
        assert kube.calls.count("list") >= 4

    run(main)


def test_a_server_that_fails_in_the_middle_of_every_stream_is_asked_for_pages() -> None:
    async def main() -> None:
        kube = FakeKube()
        kube.faults["mid-stream"] = [broken(Unavailable) for _ in range(100)]
        settings = ReflectorSettings(stream=Stream.ALWAYS, relist_s=MINUTE)
        async with following(kube, settings):
            await asyncio.sleep(10 * MINUTE)
        assert kube.calls.count("stream") == 2

    run(main)


def test_a_server_that_was_down_is_asked_for_streams_again() -> None:
    async def main() -> None:
        kube = FakeKube()
        for verb in ("stream", "list"):
            kube.faults[verb] = [broken(Unavailable) for _ in range(3)]
        async with following(kube, ReflectorSettings(stream=Stream.ALWAYS)):
            pass
        assert kube.calls[-1] == "stream"

    run(main)


def test_a_reconnect_goes_on_where_the_watch_ended_without_a_list() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with following(kube) as (reflector, told):
            await kube.put(a_pod("a"))
            await asyncio.sleep(10)
            kube.faults["watch"] = [broken(TimedOut), broken(Unavailable)]
            await kube.cut()
            await kube.put(a_pod("b"))
            await asyncio.sleep(10)
            assert names(reflector.all()) == ["a", "b"]
            assert told == ["a", "b"]
            assert kube.calls == ["list", "watch", "watch", "watch", "watch"]
            assert kube.watched_since == ["0", "1", "1", "1"]

    run(main)


def test_a_version_that_is_too_old_is_answered_by_a_new_list() -> None:
    async def main() -> None:
        kube = FakeKube()
        await kube.put(a_pod("a"))
        await kube.put(a_pod("b"))
        async with following(kube) as (reflector, told):
            told.clear()
            kube.lose_events = True
            await kube.remove(Key("ci", "a"))
            await kube.put(a_pod("c"))
            kube.forget()
            await kube.cut()
            await asyncio.sleep(5)
            assert names(reflector.all()) == ["b", "c"]
            assert told == ["a", "c"]  # what differs, and nothing else

    run(main)


def test_expiry_on_the_way_is_answered_by_a_new_list_too() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with following(kube) as (reflector, _):
            kube.faults["watch"] = [broken(Expired)]
            await kube.cut()
            await kube.put(a_pod("a"))
            await asyncio.sleep(5)
            assert names(reflector.all()) == ["a"]
            assert "stream" in kube.calls  # a relist streams

    run(main)


def test_a_lost_event_costs_time_and_not_correctness() -> None:
    async def main() -> None:
        kube = FakeKube()
        await kube.put(a_pod("gone"))
        async with following(kube, ReflectorSettings(relist_s=10 * MINUTE)) as (reflector, told):
            kube.lose_events = True
            await kube.put(a_pod("new"))
            await kube.remove(Key("ci", "gone"))
            await asyncio.sleep(8 * MINUTE)
            assert names(reflector.all()) == ["gone"]
            told.clear()
            await asyncio.sleep(4 * MINUTE)
            assert names(reflector.all()) == ["new"]
            assert {"gone", "new"} <= set(told)

    run(main)


def test_every_key_is_told_again_from_time_to_time() -> None:
    async def main() -> None:
        kube = FakeKube()
        await kube.put(a_pod("a"))
        async with following(kube, ReflectorSettings(resync_s=MINUTE)) as (_, told):
            await asyncio.sleep(10 * MINUTE)
            assert 9 <= len(told) <= 12

    run(main)


def test_age_tells_how_long_the_server_has_been_silent() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with following(kube) as (reflector, _):
            await asyncio.sleep(90)
            assert reflector.age_s == pytest.approx(90)
            await kube.put(a_pod("a"))
            await asyncio.sleep(1)
            assert reflector.age_s == pytest.approx(1)

    run(main)


def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_tight_loop() -> None:
    async def main() -> None:
        kube = FakeKube()

        async def cutter() -> None:
            for _ in range(6000):
                await asyncio.sleep(0.01)
                await kube.cut()

        async with following(kube), asyncio.TaskGroup() as group:
            group.create_task(cutter(), name="cutter")
        assert kube.calls.count("watch") < 20

    run(main)


@pytest.mark.parametrize("stream", [Stream.NEVER, Stream.RELISTS])
def test_a_server_whose_every_watch_has_expired_is_listed_ever_more_rarely(stream: Stream) -> None:
    async def main() -> None:
        kube = FakeKube()
        await kube.put(a_pod("a"))
        kube.faults["watch"] = [broken(Expired) for _ in range(10_000)]
        kube.faults["mid-stream"] = [broken(Expired) for _ in range(10_000)]
        async with following(kube, ReflectorSettings(stream=stream)):
            await asyncio.sleep(10 * MINUTE)
            assert (
                5 < len(kube.calls) < 100
            )  # half a minute apart in the end, and not half a second
            kube.faults.clear()
            await asyncio.sleep(2 * MINUTE)
            kube.calls.clear()
            await kube.put(a_pod("b"))
            await kube.cut()
            await asyncio.sleep(1)
            assert kube.calls == [
                "watch"
            ]  # it went well for long enough: the waits are short again

    run(main)


def test_a_stream_that_never_comes_to_its_end_is_given_up() -> None:
    async def main() -> None:
        kube = FakeKube()
        await kube.put(a_pod("a"))
        kube.trickles = True
        async with following(kube, ReflectorSettings(stream=Stream.ALWAYS, relist_s=300)) as (r, _):
            assert names(r.all()) == ["a"]
            assert kube.calls == ["stream", "stream", "list", "watch"]

    run(main)


def test_processes_that_started_together_do_not_watch_anew_together() -> None:
    async def main() -> None:
        kube = FakeKube()
        async with following(kube):
            for _ in range(20):
                await asyncio.sleep(2)
                await kube.cut()
        assert all(270 <= lasts_s <= 330 for lasts_s in kube.watched_for_s)
        assert len(set(kube.watched_for_s)) > 15

    run(main)


def test_a_handler_that_comes_late_is_told_of_what_is_there() -> None:
    async def main() -> None:
        kube = FakeKube()
        await kube.put(a_pod("b"))
        await kube.put(a_pod("a"))
        async with following(kube) as (reflector, _):
            told: list[Key] = []
            reflector.on_change(told.append)
            assert told == [Key("ci", "a"), Key("ci", "b")]

    run(main)
