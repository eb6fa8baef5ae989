"""A host in memory with all that the shelf and garbage collection need, to be slow, full, hung or killed as told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from remuda.agent.decide.capacity import HostOffer
from remuda.agent.decide.disk import DiskMarks, DiskSpace
from remuda.agent.decide.garbage import GarbagePolicy
from remuda.agent.disks import Disks, DisksParts
from remuda.agent.garbage import GarbageCollector, GarbageParts
from remuda.agent.images import Goldens
from remuda.agent.ledger import Ledger, on_the_spot
from remuda.agent.metrics import AgentMetrics
from remuda.agent.record import RecordFolder
from remuda.agent.settings import AgentSettings
from remuda.agent.shelf import HostShelf, ShelfParts
from remuda.ports.vms import PullProgress, TimedOut, VmsError
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from tests.support.memory_vms import Disk, MemoryVms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from remuda.ports.vms import Inventory

GIB: Final = 1024**3
TOTAL: Final = 100 * GIB
A, B, C, D = (f"registry.example/mac@sha256:{letter * 64}" for letter in "abcd")
SIZE: Final = 10 * GIB
MARKS: Final = DiskMarks(keep_free_bytes=GIB, unknown_image_bytes=SIZE)
PULL_S: Final = 60.0
HUNG_S: Final = 1200.0


@dataclass
class HalfDisk(Disk):
    """A disk that can hold halves."""

    half: set[str] = field(default_factory=set)
    """What is not whole: a golden that is being made or deleted."""


class TroubledVms(MemoryVms):
    """Takes time, and does what it is told to do wrong. Goldens are made in two halves."""

    def __init__(self, disk: HalfDisk, folder: Path, clock: SimClock) -> None:
        super().__init__(disk, folder, clock)
        self.disk, self.clock = disk, clock
        self.calls: list[str] = []
        """Every call that changes something, with what it was for."""
        self.hung: set[str] = set()
        """Images whose pull hangs, and VMs whose stop and delete hang."""
        self.faults: dict[str, list[VmsError | None]] = {}
        """By call: what its next ones raise."""
        self.pulling = self.most_pulling = 0
        self.guests: dict[str, float | None] = {}
        self.dies_before: int | None = None
        """After how many calls everything stops for ever, as in a process that was killed."""

    async def _called(self, call: str, about: str) -> None:
        if self.dies_before is not None and len(self.calls) >= self.dies_before:
            await asyncio.sleep(10**9)
        self.calls.append(f"{call} {about}")
        await self.clock.sleep(0.01)
        faults = self.faults.get(call)
        fault = faults.pop(0) if faults else None
        if fault is not None:
            raise fault
        if about in self.hung:
            await self.clock.sleep(HUNG_S)
            raise TimedOut(f"{call} hung", why="it was told to", fix="Try again", op=call)

    async def inventory(self) -> Inventory:
        faults = self.faults.get("list")
        fault = faults.pop(0) if faults else None
        if fault is not None:
            raise fault
        return await super().inventory()

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        self.pulling += 1
        self.most_pulling = max(self.most_pulling, self.pulling)
        try:
            await self._called("pull", image)
            for quarter in (1, 2, 3):
                await self.clock.sleep(PULL_S / 4)
                progress(PullProgress(done_bytes=quarter * SIZE // 4, total_bytes=SIZE))
            await self.clock.sleep(PULL_S / 4)
            await super().pull(image, progress)
        finally:
            self.pulling -= 1

    async def make_golden(self, image: str, golden: str) -> None:
        await self._called("begin golden", image)
        await super().make_golden(image, golden)
        self.disk.half.add(golden)
        await self._called("end golden", image)
        self.disk.half.discard(golden)

    async def drop_image(self, image: str) -> None:
        await self._called("drop", image)
        await super().drop_image(image)

    async def clone(self, golden: str, name: str) -> None:
        assert golden not in self.disk.half, "half a golden was cloned"
        await self._called("clone", golden)
        await super().clone(golden, name)

    async def stop(self, name: str, *, grace_s: float) -> None:
        await self._called("stop", name)
        await super().stop(name, grace_s=grace_s)

    async def delete(self, name: str) -> None:
        await self._called("delete", name)
        if name in self.disk.vms and not self.disk.vms[name].running:
            self.disk.half.add(name)
        await self._called("end delete", name)
        await super().delete(name)
        self.disk.half.discard(name)

    async def guest_disk_used(self, name: str) -> float | None:
        await self._called("exec", name)
        return self.guests.get(name)

    def count(self, call: str) -> int:
        return sum(called.startswith(f"{call} ") for called in self.calls)


class FakePods:
    """Implements ``garbage.KnownPods``."""

    def __init__(self) -> None:
        self.gone: dict[str, datetime] = {}
        self.wanted: frozenset[str] = frozenset()
        self.synced = True

    def gone_since(self) -> Mapping[str, datetime]:
        return dict(self.gone)

    def wanted_images(self) -> frozenset[str]:
        return self.wanted


class FakeKeeping:
    """Implements ``garbage.Keeping`` with a lock per Pod."""

    def __init__(self) -> None:
        self.locks: dict[str, asyncio.Lock] = {}
        self.gone: list[str] = []

    @asynccontextmanager
    async def exclusively(self, pod_uid: str) -> AsyncIterator[None]:
        async with self.locks.setdefault(pod_uid, asyncio.Lock()):
            yield

    def forgotten(self, pod_uid: str) -> None:
        self.gone.append(pod_uid)


def a_disk(free_gib: float = 90) -> HalfDisk:
    registry = dict.fromkeys((A, B, C, D), SIZE)
    return HalfDisk(registry=registry, free_bytes=int(free_gib * GIB))


@dataclass
class AHost:
    """Everything of one agent that has to do with images, on one disk. To make it anew is to restart the agent."""

    folder: Path
    disk: HalfDisk = field(default_factory=a_disk)
    policy: GarbagePolicy = field(default_factory=GarbagePolicy)
    measured: bool = True

    def __post_init__(self) -> None:
        self.clock = SimClock(asyncio.get_running_loop())
        ids = SeededIds(1, "agent")
        self.folder.mkdir(exist_ok=True)
        self.records = RecordFolder(self.folder / "records", sync=lambda _: None)
        self.ledger = Ledger(self.records, on_the_spot)
        self.metrics = AgentMetrics(CollectorRegistry())
        self.vms = TroubledVms(self.disk, self.folder / "vms", self.clock)
        self.pods, self.keeping = FakePods(), FakeKeeping()
        self.settings = AgentSettings(
            node="mac-1",
            data=self.folder,
            offer=HostOffer(cpus=4, memory_mib=8192, vms=2, pods=4),
            fleet="mac",
            garbage=self.policy,
            disk=MARKS,
        )
        self.goldens = Goldens(self.vms, self.ledger, self.clock)
        self.disks = Disks(
            DisksParts(
                vms=self.vms,
                ledger=self.ledger,
                goldens=self.goldens,
                space=self.space,
                marks=MARKS,
                clock=self.clock,
                ids=ids,
                metrics=self.metrics,
            )
        )
        self.garbage = GarbageCollector(
            GarbageParts(
                vms=self.vms,
                ledger=self.ledger,
                goldens=self.goldens,
                pods=self.pods,
                keeping=self.keeping,
                disk=self.disks,
                threads=on_the_spot,
                clock=self.clock,
                ids=ids,
                metrics=self.metrics,
            ),
            self.settings,
        )
        self.shelf = HostShelf(
            ShelfParts(
                vms=self.vms,
                ledger=self.ledger,
                goldens=self.goldens,
                room=self.garbage,
                space=self.space,
                marks=MARKS,
                clock=self.clock,
                metrics=self.metrics,
            )
        )

    def space(self) -> DiskSpace | None:
        return DiskSpace(self.disk.free_bytes, TOTAL) if self.measured else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Run the shelf until the block and its tasks are over. Then the agent ends, whatever else it was at."""
        try:
            async with asyncio.TaskGroup() as agent:
                shelf = agent.create_task(self.shelf.run(), name="shelf")
                async with asyncio.TaskGroup() as pods:
                    yield pods
                shelf.cancel()
        finally:
            self.records.close()

    async def clone(self, image: str, name: str, say: Callable[[str], None] | None = None) -> None:
        """Do what a Pod does."""
        async with self.shelf.using(image, say or _quietly) as golden:
            await self.vms.clone(golden, name)

    @property
    def names(self) -> list[str]:
        return sorted(self.disk.vms)


def _quietly(_: str) -> None:
    """Take no notice."""


def broken(sort: type[VmsError], why: str = "the test wants it so") -> VmsError:
    return sort("It failed", why=why, fix="Nothing")
