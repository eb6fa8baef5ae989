"""
From a Pod that is bound to a VM that runs, beside the bare commands on the same host; and what one that hangs costs.

Both ways start the same VM from the same warm golden with the same ``tart`` (the stand-in), and both are timed until
the stand-in writes down that the machine was switched on. The bare way is clone, set and run, one after the other, as a
person would type them. What the agent adds to that is told as a difference: it hears of the Pod, puts its finalizer on
it, looks whether there is such a VM and whether a slot is free, and makes three records durable. Its time begins before
the Pod is created, bound: so the API server's part is in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

from remuda.adapters.system import SystemClock
from remuda.ports.vms import golden_name, vm_name
from tests.bench.hosted import WAIT_S, hosted
from tests.support.control_plane import RealControlPlane
from tests.support.debian import NotFetched, unpacked
from tests.support.docker_registry import docker_registry
from tests.support.eventually import eventually
from tests.support.macs import Mac, a_mac, push_runner_image
from tests.support.tart.faults import Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.kube.core import Pod
    from tests.bench.hosted import Hosted

SAMPLES = 60
SLICES, SLICE = 4, 7
"""Of starts with a hung clone beside them, and of as many without."""
WITHIN_S = 80.0
"""When no start is begun any more, so that a slow machine measures less, and says so, instead of for ever."""
P50_MAX_S, P99_MAX_S = 0.150, 0.300
INTERFERENCE_MAX = 1.1
PROGRAM = "#!/bin/sh\nexec sleep 3600\n"
"""A guest that only runs: what it does once it is up is not measured here."""
SIZE = {"cpu": "4", "memory": "4Gi"}
CPUS, MEMORY_MIB = "4", "4096"


class Boots:
    """When VMs were switched on, by the stand-in's journal; read on, never anew: to look must cost next to nothing."""

    def __init__(self, journal: Path) -> None:
        self._journal, self._read = journal, 0
        self._at: dict[str, float] = {}

    def at(self, name: str) -> float | None:
        if self._journal.exists() and self._journal.stat().st_size > self._read:
            with self._journal.open("rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]
            self._read += len(whole) + 1 if whole else 0
            for note in map(json.loads, whole.splitlines()):
                if note["event"] == "boot":
                    self._at[note["vm"]] = note["at"]
        return self._at.get(name)


@dataclass(slots=True)
class Stable:
    """A host with its agent and its tart."""

    agent: Hosted
    mac: Mac
    golden: str
    numbers: count[int]
    boots: Boots

    async def bare_s(self) -> float:
        """Start a VM by hand; return how long it took until it ran."""
        name = f"by-hand-{next(self.numbers)}"
        began = SystemClock().now().timestamp()
        await self._tart("clone", self.golden, name)
        identity = ("--random-mac", "--random-serial")
        await self._tart("set", name, *identity, "--cpu", CPUS, "--memory", MEMORY_MIB)
        flags = ("--no-graphics", "--no-audio", "--root-disk-opts", "caching=cached")
        run = await self._begun("run", name, *flags)
        at = await self.booted(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        await run.wait()
        await self._tart("delete", name)
        return at - began

    async def agents_s(self) -> float:
        """Have the agent start a VM; return how long it took from before its Pod was created."""
        began = SystemClock().now().timestamp()
        pod = await self.agent.bind()
        took_s = await self.booted(vm_name(pod.uid)) - began
        await self.agent.remove([pod])
        return took_s

    async def slice_s(self) -> list[float]:
        return [await self.agents_s() for _ in range(SLICE)]

    async def booted(self, name: str) -> float:
        """Wait until a VM was switched on, and return when that was."""

        async def seen() -> float | None:
            return self.boots.at(name)

        at = await eventually(seen, lambda at: at is not None, within_s=WAIT_S)
        assert at is not None
        return at

    @asynccontextmanager
    async def hung(self) -> AsyncIterator[Pod]:
        """Have the clone of another Pod's VM hang meanwhile."""
        self.mac.tart.order(Fault(verb="clone", kind="hang"))
        pod = await self.agent.bind()

        async def waiting() -> list[Fault]:
            return self.mac.tart.desk.waiting()

        await eventually(waiting, lambda left: left == [], within_s=WAIT_S)
        yield pod
        await self.agent.remove([pod])

    async def _tart(self, *words: str) -> None:
        process = await self._begun(*words)
        assert await process.wait() == 0, words

    async def _begun(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self.mac.tart.program,
            *words,
            env=self.mac.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )


@asynccontextmanager
async def a_stable(plane: RealControlPlane) -> AsyncIterator[Stable]:
    """Start an agent on a host that has an image already, and has started a VM from it once."""
    with tempfile.TemporaryDirectory(prefix="remuda-bench-") as made:
        folder = Path(made)
        with docker_registry(folder / "registry") as registry:
            image = await asyncio.to_thread(
                push_runner_image, registry, folder, "bench", program=PROGRAM
            )
            mac = a_mac(folder)
            async with hosted(
                plane, folder, options=mac.options, image=image, resources=SIZE, env=mac.env
            ) as agent:
                stable = Stable(
                    agent,
                    mac,
                    golden_name(image),
                    count(1),
                    Boots(mac.tart.desk.folder / "journal"),
                )
                await stable.agents_s()
                await stable.bare_s()
                yield stable


def p99(values: list[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98]


async def compare(plane: RealControlPlane) -> bool:
    """Print both lines, and say whether all targets were met. What cannot be measured was not met."""
    try:
        unpacked("docker-registry")
    except NotFetched as error:
        print(f"VM starts: not measured, since there is no registry for their image: {error}")
        return False
    async with a_stable(plane) as stable:
        overhead = await measure_overhead(stable)
        return await measure_interference(stable) and overhead


async def measure_overhead(stable: Stable) -> bool:
    """Start VMs both ways in turns. Each start by the agent is held against those by hand before and after it."""
    bare_s = [await stable.bare_s()]
    agents_s: list[float] = []
    more_s: list[float] = []
    ends_at = SystemClock().monotonic() + WITHIN_S
    while len(more_s) < SAMPLES and SystemClock().monotonic() < ends_at:
        agents_s.append(await stable.agents_s())
        bare_s.append(await stable.bare_s())
        more_s.append(agents_s[-1] - (bare_s[-2] + bare_s[-1]) / 2)
    met = median(more_s) <= P50_MAX_S and p99(more_s) <= P99_MAX_S
    print(
        f"VM starts: Pod bound to VM running {1000 * median(agents_s):.0f} ms, by hand"
        f" {1000 * median(bare_s):.0f} ms: {1000 * median(more_s):+.0f} ms p50,"
        f" {1000 * p99(more_s):+.0f} ms p99 (targets <= {1000 * P50_MAX_S:.0f},"
        f" <= {1000 * P99_MAX_S:.0f}, {'met' if met else 'MISSED'}; {len(more_s)} of each)"
    )
    return met


async def measure_interference(stable: Stable) -> bool:
    """Start VMs with and without a hung clone beside them, in turns."""
    ratios: list[float] = []
    alone_s: list[float] = []
    beside_s: list[float] = []
    ends_at = SystemClock().monotonic() + WITHIN_S
    for number in range(SLICES):
        if ratios and SystemClock().monotonic() > ends_at:
            break
        alone = [] if number % 2 else await stable.slice_s()
        async with stable.hung():
            beside = await stable.slice_s()
        alone = alone or await stable.slice_s()
        alone_s += alone
        beside_s += beside
        ratios.append(median(beside) / median(alone))
    ratio = median(beside_s) / median(alone_s)
    met = ratio <= INTERFERENCE_MAX
    print(
        f"hung clone: other VMs start in {1000 * median(beside_s):.0f} ms, without it in"
        f" {1000 * median(alone_s):.0f} ms: {ratio:.2f} x ({min(ratios):.2f} to {max(ratios):.2f};"
        f" target <= {INTERFERENCE_MAX}, {'met' if met else 'MISSED'}; {len(alone_s)} of each)"
    )
    return met


def main() -> int:
    with RealControlPlane(crds=()) as plane:
        return 0 if asyncio.run(compare(plane)) else 1


if __name__ == "__main__":
    sys.exit(main())
