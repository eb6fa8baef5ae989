"""
How much memory an agent takes, with 2 VMs and with 100, and how much all that it started for each VM.

The VMs are guests of the driver "process", each ready and waiting for a job: what is told of them is what every VM
costs beside itself. Memory is proportional set size: pages that several share are divided among them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.kube.core import POD
from remuda.ports.kube import Query
from tests.bench.hosted import NAMESPACE, hosted
from tests.support.agents import processes_below
from tests.support.control_plane import RealControlPlane

if TYPE_CHECKING:
    from tests.bench.hosted import Hosted

FEW, MANY = 2, 100
WITHIN_S = 60.0
"""How long to wait for so many VMs; then as many are measured as run."""
LOOK_S = 1.0
SETTLE_S = 2.0
AT_ONCE = 8
SIZE = {"cpu": "10m", "memory": "16Mi"}
KIB = 1024


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes, with so many VMs."""

    vms: int
    agent_bytes: int
    resident_bytes: int
    others_bytes: int

    @property
    def each_bytes(self) -> float:
        return self.others_bytes / max(1, self.vms)


def rolled_up(pid: int) -> dict[str, int]:
    """Return what the system says about the memory of a process, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    split = (line.split() for line in lines)
    return {words[0].rstrip(":"): int(words[1]) * KIB for words in split}


def measured(host: Hosted, vms: int) -> Measured:
    agent = host.pid
    others = 0
    for pid in processes_below(host.host.folder):
        if pid != agent:
            with contextlib.suppress(OSError):  # it is over meanwhile
                others += rolled_up(pid).get("Pss", 0)
    mine = rolled_up(agent)
    return Measured(vms, mine["Pss"], mine["Rss"], others)


async def running(host: Hosted, number: int) -> int:
    """Wait until so many Pods run, but not for ever; return how many do."""
    query = Query(namespace=NAMESPACE, fields=f"spec.nodeName={host.host.name}")
    found = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WITHIN_S):
            while found < number:
                listed = await host.kube.list(POD, query)
                found = sum(pod.status.phase == "Running" for pod in listed.items)
                await asyncio.sleep(LOOK_S)
    await asyncio.sleep(SETTLE_S)
    return found


async def bind(host: Hosted, number: int) -> None:
    left = iter(range(number))

    async def some() -> None:
        for _ in left:
            await host.bind()

    async with asyncio.TaskGroup() as group:
        for worker in range(AT_ONCE):
            group.create_task(some(), name=f"binder {worker}")


async def measure(plane: RealControlPlane) -> str:
    """Return the line to print. There is no target: it is to be seen when it grows."""
    options = ("--driver=process", f"--vms={MANY}")
    with tempfile.TemporaryDirectory(prefix="remuda-bench-") as folder:
        async with hosted(
            plane, Path(folder), options=options, image="process", resources=SIZE
        ) as host:
            await bind(host, FEW)
            few = measured(host, await running(host, FEW))
            await bind(host, MANY - FEW)
            many = measured(host, await running(host, MANY))
    more = (many.agent_bytes - few.agent_bytes) / max(1, many.vms - few.vms)
    return (
        f"agent memory: {few.agent_bytes / KIB**2:.1f} MiB with {few.vms} VMs (resident"
        f" {few.resident_bytes / KIB**2:.1f}), {many.agent_bytes / KIB**2:.1f} MiB with {many.vms} VMs (resident"
        f" {many.resident_bytes / KIB**2:.1f}): {more / KIB:.0f} KiB more for each;"
        f" what it started takes {many.each_bytes / KIB:.0f} KiB for each VM"
    )


def main() -> int:
    with RealControlPlane(crds=()) as plane:
        print(asyncio.run(measure(plane)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
