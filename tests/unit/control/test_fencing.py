from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
import pytest

from remuda.adapters.kube_client import KubeClient
from remuda.control.cache import Key
from remuda.control.election import ElectionSettings, LeaderElector
from remuda.control.fencing import FencedKube, NotLeading
from remuda.kube.core import LEASE, POD, Lease, Pod
from remuda.kube.patches import MergePatch
from remuda.ports.kube import TimedOut
from remuda.ports.wire import Response
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.unit.control.fake_kube import FakeKube, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from remuda.ports.wire import Request, WireStream

LEASE_KEY = Key("ci", "leader")
SETTINGS = ElectionSettings(namespace="ci", name="leader", identity="me")


class LateWire:
    """The worst server that keeps its word: it applies a write just when the caller gives it up, and never answers."""

    def __init__(self) -> None:
        self.applied_at: list[float] = []
        self.deadlines: list[str] = []
        self.answers = False

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        loop = asyncio.get_running_loop()
        self.deadlines.append(dict(request.query)["timeout"])
        if self.answers:
            return Response(200, msgspec.json.encode({"metadata": {"name": "a"}}))
        # What was sent is sent: cancelling the caller does not call it back.
        loop.call_later(timeout_s, lambda: self.applied_at.append(loop.time()))
        await asyncio.sleep(timeout_s)
        raise TimedOut("It", why="the test wants it so", fix="Nothing")

    def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AbstractAsyncContextManager[WireStream]:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class Leader:
    """One candidate that leads at once, and what its work does meanwhile."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.leases = FakeKube()
        self.wire = LateWire()
        clock, ids = SimClock(self.loop), SeededIds(1, "me")
        self.elector = LeaderElector(self.leases, SETTINGS, clock=clock, ids=ids)
        self.kube = FencedKube(KubeClient(self.wire), self.elector)

    @property
    def released(self) -> bool:
        return not self.leases.objects[LEASE_KEY].spec.holder_identity

    @asynccontextmanager
    async def leading(self, work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.elector.run(work), name="elector")
            yield
            task.cancel()

    async def write_without_end(self) -> None:
        while True:
            try:
                await self.kube.create(POD, Pod(metadata=named("a")))
            except (TimedOut, NotLeading):
                await asyncio.sleep(0.1)


def test_no_write_is_applied_after_the_reign_in_which_it_began() -> None:
    async def main() -> None:
        leader = Leader()
        async with leader.leading(leader.write_without_end):
            await asyncio.sleep(30.05)
            renewed_at = leader.loop.time()
            leader.leases.delay_s = 3600  # no renewal gets through any more
            await asyncio.sleep(60)
            assert not leader.elector.is_leader
        assert len(leader.wire.applied_at) > 2
        # The lease that others see was renewed at the earliest two and a bit seconds before that.
        assert max(leader.wire.applied_at) <= renewed_at + SETTINGS.renew_deadline_s
        assert all(0 < float(d.removesuffix("s")) <= 10 for d in leader.wire.deadlines)

    run(main)


def test_a_leader_that_stops_with_a_write_in_doubt_keeps_the_lease() -> None:
    async def main() -> None:
        leader = Leader()
        async with leader.leading(leader.write_without_end):
            await asyncio.sleep(5)
        assert leader.wire.applied_at == []  # cancelled here, but still to be applied there
        assert not leader.released
        await asyncio.sleep(SETTINGS.lease_duration_s)
        assert leader.wire.applied_at

    run(main)


def test_a_last_write_that_outlives_its_handler_is_in_doubt_too() -> None:
    async def main() -> None:
        leader = Leader()

        async def last_write() -> None:
            with suppress(TimedOut):
                await leader.kube.delete(POD, "a", namespace="ci")

        async def work() -> None:
            await asyncio.shield(last_write())

        async with leader.leading(work):
            await asyncio.sleep(5)
        assert not leader.released
        await asyncio.sleep(SETTINGS.lease_duration_s)

    run(main)


def test_a_leader_that_stops_with_every_write_answered_gives_the_lease_back() -> None:
    async def main() -> None:
        leader = Leader()
        leader.wire.answers = True

        async def work() -> None:
            await leader.kube.create(POD, Pod(metadata=named("a")))
            await leader.loop.create_future()

        async with leader.leading(work):
            await asyncio.sleep(5)
        assert leader.released

    run(main)


def test_a_doubt_is_over_when_the_write_can_no_longer_be_applied() -> None:
    async def main() -> None:
        leader = Leader()

        async def work() -> None:
            with pytest.raises(TimedOut):
                await leader.kube.delete(POD, "a", namespace="ci")
            leader.wire.answers = True
            await leader.loop.create_future()

        async with leader.leading(work):
            await asyncio.sleep(12)
        assert leader.wire.applied_at
        assert leader.released

    run(main)


def test_a_stopped_process_whose_timers_are_late_writes_nothing_when_it_goes_on() -> None:
    async def main() -> None:
        leader, kube = Leader(), FakeKube()
        fenced = FencedKube(kube, leader.elector)
        async with leader.leading(leader.loop.create_future):
            await asyncio.sleep(5)
            await fenced.create(LEASE, Lease(metadata=named("leader")))
            leader.elector._leads_until = leader.loop.time()  # noqa: SLF001 - a pause: time passed, timers did not
            with pytest.raises(NotLeading):
                await fenced.create(LEASE, Lease(metadata=named("made too late")))
            with pytest.raises(NotLeading):
                await fenced.patch(LEASE, "leader", MergePatch({}), namespace="ci")
            with pytest.raises(NotLeading):
                await fenced.delete(LEASE, "leader", namespace="ci")
            with pytest.raises(NotLeading):
                await fenced.request_token("a", namespace="ci", audience="x", expiration_s=600)
            assert (await fenced.get(LEASE, "leader", namespace="ci")).name == "leader"
        assert Key("ci", "made too late") not in kube.objects

    run(main)
