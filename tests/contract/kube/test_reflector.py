"""A Reflector on a server that breaks its connections: what it holds is what the server has, and stays so."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock, SystemIds
from remuda.control.backoff import Backoff
from remuda.control.reflector import Reflector, ReflectorSettings, Stream
from remuda.kube.core import EVENT
from remuda.kube.patches import MergePatch
from remuda.ports.kube import Query, Unavailable
from tests.support.backends import client
from tests.support.eventually import eventually, within
from tests.support.manifests import CONFIG_MAP, a_config_map

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.control.cache import Key
    from remuda.kube.kinds import Kind
    from remuda.kube.meta import Resource
    from remuda.ports.kube import Kube
    from remuda.ports.wire import Request, Response, Wire, WireStream
    from tests.support.backends import Backend
    from tests.support.raw import Raw
    from tests.support.space import Space

FAST = Backoff(first_s=0.05, longest_s=0.2)


class BreakableWire:
    """A wire whose watches can all be broken at once, and kept from coming back."""

    def __init__(self, inner: Wire) -> None:
        self._inner = inner
        self._open: set[_Breakable] = set()
        self.opened = 0
        self.down = False

    async def is_watching(self) -> bool:
        return bool(self._open)

    def break_all(self) -> None:
        for stream in self._open:
            stream.cut()

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        return await self._inner.send(request, timeout_s=timeout_s)

    @asynccontextmanager
    async def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AsyncIterator[WireStream]:
        if self.down:
            raise _cut()
        async with self._inner.stream(
            request, connect_timeout_s=connect_timeout_s, idle_timeout_s=idle_timeout_s
        ) as stream:
            breakable = _Breakable(stream)
            self._open.add(breakable)
            self.opened += 1
            try:
                yield breakable
            finally:
                self._open.discard(breakable)

    async def close(self) -> None:
        await self._inner.close()


class _Breakable:
    def __init__(self, stream: WireStream) -> None:
        self._stream = stream
        self._reading: asyncio.Timeout | None = None
        self._is_cut = False

    @property
    def status(self) -> int:
        return self._stream.status

    def cut(self) -> None:
        self._is_cut = True
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())

    async def chunks(self) -> AsyncIterator[bytes]:
        chunks = self._stream.chunks()
        while not self._is_cut:
            try:
                async with asyncio.timeout(None) as self._reading:
                    chunk = await anext(chunks, None)
            except TimeoutError:
                break
            finally:
                self._reading = None
            if chunk is None:
                return
            yield chunk
        raise _cut()


def _cut() -> Unavailable:
    return Unavailable("The watch ended", why="the test cut it", fix="Watch again")


@asynccontextmanager
async def following(
    kube: Kube, kind: Kind[Resource], space: Space, stream: Stream = Stream.RELISTS
) -> AsyncIterator[tuple[Reflector[Resource], list[Key]]]:
    """Run a Reflector of one namespace, synced, with the keys that its handler was told."""
    reflector: Reflector[Resource] = Reflector(
        kube,
        kind,
        Query(namespace=space.name),
        clock=SystemClock(),
        ids=SystemIds(),
        settings=ReflectorSettings(backoff=FAST, stream=stream),
    )
    told: list[Key] = []
    reflector.on_change(told.append)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reflector.run(), name="reflector")
        await within(reflector.wait_synced())
        yield reflector, told
        running.cancel()


async def holds_what_the_server_has(
    reflector: Reflector[Resource], kube: Kube, kind: Kind[Resource], space: Space
) -> None:
    async def same() -> bool:
        listing = await kube.list(kind, Query(namespace=space.name))
        return reflector.all() == listing.items

    await eventually(same)


@pytest.mark.parametrize("stream", [Stream.ALWAYS, Stream.NEVER])
async def test_it_begins_with_all_there_is_and_follows(
    kube: Kube, raw: Raw, space: Space, stream: Stream
) -> None:
    for name in ("a", "b"):
        (await raw.post(space.path("configmaps"), a_config_map(name))).ok()

    async with following(kube, CONFIG_MAP, space, stream) as (reflector, told):
        assert [item.name for item in reflector.all()] == ["a", "b"]
        await kube.patch(CONFIG_MAP, "a", MergePatch({"data": {"turn": "1"}}), namespace=space.name)
        await kube.delete(CONFIG_MAP, "b", namespace=space.name)
        await holds_what_the_server_has(reflector, kube, CONFIG_MAP, space)

    assert [key.name for key in told] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("stream", [Stream.ALWAYS, Stream.NEVER])
async def test_a_broken_watch_resumes_without_a_new_list(
    backend: Backend, raw: Raw, kube: Kube, space: Space, stream: Stream
) -> None:
    (await raw.post(space.path("configmaps"), a_config_map("a"))).ok()
    wire = BreakableWire(backend.wire())
    try:
        async with following(client(wire), CONFIG_MAP, space, stream) as (reflector, told):
            for turn in range(5):
                await eventually(wire.is_watching)
                wire.down = True
                wire.break_all()
                (await raw.merge(space.path("configmaps", "a"), {"data": {"t": str(turn)}})).ok()
                (await raw.post(space.path("configmaps"), a_config_map(f"b{turn}"))).ok()
                wire.down = False
                await holds_what_the_server_has(reflector, kube, CONFIG_MAP, space)
    finally:
        await wire.close()

    # Once at first, then once per change: a relist would not have told less, but a doubled event more.
    assert sorted(key.name for key in told) == ["a"] * 6 + [f"b{turn}" for turn in range(5)]
    assert wire.opened >= 5


async def test_an_expired_version_leads_to_a_new_list_that_finds_the_deleted(
    backend: Backend, kube: Kube, raw: Raw, space: Space
) -> None:
    about = {"kind": "Pod", "name": "mare", "namespace": space.name}
    for name in ("a", "b", "c"):
        event = {"metadata": {"name": name}, "involvedObject": about}
        (await raw.post(space.path("events"), event)).ok()
    wire = BreakableWire(backend.wire())
    try:
        async with following(client(wire), EVENT, space) as (reflector, told):
            assert [item.name for item in reflector.all()] == ["a", "b", "c"]
            await eventually(wire.is_watching)
            wire.down = True
            wire.break_all()
            (await raw.delete(space.path("events", "b"))).ok()
            (await raw.merge(space.path("events", "c"), {"count": 2})).ok()
            await backend.forget_history()
            wire.down = False
            await holds_what_the_server_has(reflector, kube, EVENT, space)
    finally:
        await wire.close()

    assert [item.name for item in reflector.all()] == ["a", "c"]
    assert [key.name for key in told] == ["a", "b", "c", "b", "c"]
