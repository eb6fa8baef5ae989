"""The one-machine control plane over HTTPS beside the real API server: writes, and watch fan-out, per second."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kube_client.kubeconfig import load
from remuda.kube.core import LEASE, Lease, LeaseSpec
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import MergePatch
from remuda.ports.wire import Request
from tests.support.control_plane import RealControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.ports.wire import Wire

SLICES = 5
WRITES = 1_000
WRITERS = 32
WATCHERS = 40
CHANGES = 200


@dataclass(frozen=True, slots=True)
class Rates:
    """What one server did in one slice."""

    writes_per_s: float
    events_per_s: float


@contextlib.contextmanager
def standalone() -> Iterator[Path]:
    """Run ``remuda control-plane`` as a user would, and give its kubeconfig."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "remuda", "control-plane", "--data", folder, "--port", "0"]
        with subprocess.Popen(  # noqa: S603 - our own command
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            try:
                process.stdout.readline()
                yield Path(process.stdout.readline().strip().partition("=")[2])
            finally:
                process.terminate()


async def one_slice(kubeconfig: Path, number: int) -> Rates:
    """Write, then change while many watch."""
    wire = HttpWire(load(kubeconfig))
    client = KubeClient(wire)
    try:
        writes = await _writes(client, number)
        events = await _fan_out(client, wire, number)
    finally:
        await client.close()
    return Rates(writes, events)


async def _writes(client: KubeClient, number: int) -> float:
    left = iter(range(WRITES))

    async def writer() -> None:
        for n in left:
            meta = ObjectMeta(name=f"write-{number}-{n}", namespace="default")
            await client.create(
                LEASE, Lease(metadata=meta, spec=LeaseSpec(holder_identity="bench"))
            )

    start = perf_counter()
    async with asyncio.TaskGroup() as group:
        for n in range(WRITERS):
            group.create_task(writer(), name=f"writer {n}")
    return WRITES / (perf_counter() - start)


async def _fan_out(client: KubeClient, wire: Wire, number: int) -> float:
    """Change one object again and again; count until every watcher has seen every change."""
    name = f"write-{number}-0"
    since = (await client.list(LEASE)).resource_version
    open_watches = asyncio.Barrier(WATCHERS + 1)

    async def watcher() -> None:
        query = (
            ("watch", "true"),
            ("resourceVersion", since),
            ("fieldSelector", f"metadata.name={name}"),
        )
        request = Request("GET", LEASE.path("default"), query)
        seen = 0
        async with wire.stream(request, connect_timeout_s=30, idle_timeout_s=60) as stream:
            await open_watches.wait()
            async for chunk in stream.chunks():
                seen += chunk.count(b"\n")
                if seen >= CHANGES:
                    return

    async with asyncio.TaskGroup() as group:
        for n in range(WATCHERS):
            group.create_task(watcher(), name=f"watcher {n}")
        await open_watches.wait()
        start = perf_counter()
        for n in range(CHANGES):
            patch = MergePatch({"spec": {"holderIdentity": f"bench-{n}"}})
            await client.patch(LEASE, name, patch, namespace="default")
    return WATCHERS * CHANGES / (perf_counter() - start)


async def measure(real: Path) -> list[str]:
    """Alternate between the two servers, so that the machine's moods strike both alike."""
    ours, theirs = [], []
    with standalone() as store:
        for number in range(SLICES):
            ours.append(await one_slice(store, number))
            theirs.append(await one_slice(real, number))
    return [
        _line("store writes", [r.writes_per_s for r in ours], [r.writes_per_s for r in theirs]),
        _line(
            "store watch fan-out", [r.events_per_s for r in ours], [r.events_per_s for r in theirs]
        ),
    ]


def _line(what: str, ours: list[float], theirs: list[float]) -> str:
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return (
        f"{what}: {median(ours):,.0f}/s over HTTPS, durable; the real API server {median(theirs):,.0f}/s"
        f" ({median(ratios):.2f} x, {min(ratios):.2f} to {max(ratios):.2f})"
    )


def main() -> None:
    with RealControlPlane(crds=()) as plane:
        for line in asyncio.run(measure(plane.access.kubeconfig)):
            print(line)


if __name__ == "__main__":
    main()
