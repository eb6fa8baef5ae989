"""A builder at work: its Tart holds a freshly baked image whose push takes long; the agent may tidy up beside it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from remuda.adapters.system import SystemClock, SystemIds
from remuda.agent.decide.disk import DiskSpace
from remuda.agent.disks import Disks, DisksParts
from remuda.agent.garbage import GarbageCollector, GarbageParts
from remuda.agent.images import Goldens
from remuda.agent.ledger import Ledger, on_the_spot
from remuda.agent.metrics import AgentMetrics
from remuda.agent.record import RecordFolder
from remuda.cli.agent import agent
from remuda.cli.agent_options import Told, agent_settings
from tests.support.tart.driven import DrivenTart
from tests.unit.agent.a_host import FakeKeeping, FakePods

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remuda.agent.guards import Guards
    from remuda.agent.settings import AgentSettings

BAKED = "runner-image"
_GIB = 1024**3


def settings_of(words: list[str], data: Path, guards: Guards) -> AgentSettings:
    """Read the words of an agent's launchd job as the agent itself does."""
    assert words[1] == "agent"
    told = Told(**agent.make_context("agent", words[2:]).params)
    read = agent_settings(told, "https://api.test")
    return replace(read, data=data, garbage=replace(read.garbage, guards=guards))


@dataclass
class Bakery:
    """A Tart with an image on its way to a registry, and the garbage collection of an agent."""

    tart: DrivenTart
    push: subprocess.Popen[str]
    collector: GarbageCollector

    async def tidy_up(self) -> None:
        """Have the agent collect all that it ever would: as time passes, and because there is no room."""
        await self.collector.collect_once()
        await self.collector.make_room(lambda: False)

    @property
    def is_pushed_still(self) -> bool:
        return self.push.poll() is None and self.tart.tart.vm(BAKED).nvram.exists()


@asynccontextmanager
async def a_bakery(folder: Path, settings: AgentSettings) -> AsyncIterator[Bakery]:
    """Bake an image and push it to a registry that has not answered yet."""
    tart = DrivenTart(folder / "tart")
    with socket.create_server(("127.0.0.1", 0)) as registry:
        registry.setblocking(False)  # noqa: FBT003 - its only way
        try:
            tart.tart.make(BAKED)
            where = f"127.0.0.1:{registry.getsockname()[1]}/images:1"
            push = tart.tart.start("push", BAKED, where, "--insecure")
            asked, _ = await asyncio.get_running_loop().sock_accept(registry)
            with asked:
                yield Bakery(tart, push, _collector(tart, settings))
        finally:
            tart.close()


def _collector(tart: DrivenTart, settings: AgentSettings) -> GarbageCollector:
    clock, ids, metrics = SystemClock(), SystemIds(), AgentMetrics(CollectorRegistry())
    ledger = Ledger(RecordFolder(settings.data / "records", sync=lambda _: None), on_the_spot)
    goldens = Goldens(tart.vms, ledger, clock)
    disks = Disks(
        DisksParts(
            vms=tart.vms,
            ledger=ledger,
            goldens=goldens,
            space=lambda: DiskSpace(_GIB, 100 * _GIB),
            marks=settings.disk,
            clock=clock,
            ids=ids,
            metrics=metrics,
        )
    )
    parts = GarbageParts(
        vms=tart.vms,
        ledger=ledger,
        goldens=goldens,
        pods=FakePods(),
        keeping=FakeKeeping(),
        disk=disks,
        threads=on_the_spot,
        clock=clock,
        ids=ids,
        metrics=metrics,
    )
    return GarbageCollector(parts, settings)
