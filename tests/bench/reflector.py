"""
The reflector against a real API server: memory as a multiple of the JSON, and cold sync against a plain list.

``python -m tests.bench.reflector`` starts a control plane of its own; with ``--kubeconfig`` it uses one that runs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kube_client.kubeconfig import load
from remuda.adapters.system import SystemClock, SystemIds
from remuda.control.cache import by_label, by_node, by_owner_uid
from remuda.control.reflector import Reflector, ReflectorSettings, Stream
from remuda.kube.core import POD, Pod
from remuda.ports.kube import Query
from remuda.ports.wire import Request
from tests.bench.pods import NAMESPACE, create_all, runner_pod
from tests.support.control_plane import RealControlPlane

if TYPE_CHECKING:
    from remuda.ports.kube import Kube

PODS = 10_000
SLICES = 5
MEMORY_TARGET = 0.75
SYNC_TARGET = 2.0

OURS = Query(namespace=NAMESPACE, labels="remuda.dev/bench=reflector")
NOTHING = Query(namespace=NAMESPACE, labels="remuda.dev/bench=nothing")


class Memory(msgspec.Struct):
    """What one process, which did nothing else, took for the Pods it holds."""

    pods: int
    rss_bytes: int


async def synced(kube: Kube, query: Query, stream: Stream) -> tuple[Reflector[Pod], float]:
    """Run a reflector with the indexes that the operator has until it is synced; return it and the seconds."""
    settings = ReflectorSettings(stream=stream)
    reflector = Reflector(kube, POD, query, clock=SystemClock(), ids=SystemIds(), settings=settings)
    reflector.index("pool", by_label("remuda.dev/pool"))
    reflector.index("node", by_node)
    reflector.index("owner", by_owner_uid)
    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflector.run(), name="reflector")
        await reflector.wait_synced()
        took_s = perf_counter() - began
        task.cancel()
    return reflector, took_s


async def cold_sync(kubeconfig: Path, stream: Stream = Stream.RELISTS) -> float:
    client = KubeClient(HttpWire(load(kubeconfig)))
    try:
        reflector, took_s = await synced(client, OURS, stream)
        assert len(reflector) > 0
        return took_s
    finally:
        await client.close()


async def plain_list(kubeconfig: Path) -> tuple[float, int]:
    """Read the same objects in the same pages, and look at nothing but where the next page is."""
    wire = HttpWire(load(kubeconfig))
    size_bytes, next_page = 0, ""
    began = perf_counter()
    try:
        while True:
            options = (("labelSelector", OURS.labels), ("limit", "500"), ("continue", next_page))
            request = Request("GET", POD.path(NAMESPACE), options[: 3 if next_page else 2])
            body = (await wire.send(request, timeout_s=60)).body
            size_bytes += len(body)
            found = re.search(rb'"continue":"([^"]+)"', body[:1000])
            if found is None:
                return perf_counter() - began, size_bytes
            next_page = found[1].decode()
    finally:
        await wire.close()


async def measure_memory(kubeconfig: Path) -> Memory:
    """Measure in this process, which must be a fresh one."""
    client = KubeClient(HttpWire(load(kubeconfig)))
    await synced(client, NOTHING, Stream.RELISTS)  # everything that holding no Pods takes
    gc.collect()
    before = _rss_bytes()
    reflector, _ = await synced(client, OURS, Stream.RELISTS)
    gc.collect()
    after = _rss_bytes()
    await client.close()
    return Memory(pods=len(reflector), rss_bytes=after - before)


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_of_a_fresh_process(kubeconfig: Path) -> Memory:
    answer = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-m", "tests.bench.reflector", "--measure-memory", kubeconfig],
        check=True,
        capture_output=True,
    )
    return msgspec.json.decode(answer.stdout, type=Memory)


async def fill(kubeconfig: Path, pods: int) -> None:
    client = KubeClient(HttpWire(load(kubeconfig)))
    try:
        found = await client.list(POD, OURS)
        there = {pod.name for pod in found.items}
        wanted = (runner_pod(number, "reflector") for number in range(pods))
        await create_all(client, (pod for pod in wanted if pod.name not in there))
    finally:
        await client.close()


def compare(kubeconfig: Path, pods: int) -> bool:
    """Print one line for each target and say whether all were met."""
    asyncio.run(fill(kubeconfig, pods))
    in_pages: list[float] = []
    streamed: list[float] = []
    size_bytes = 0
    for _ in range(SLICES):
        plain_s, size_bytes = asyncio.run(plain_list(kubeconfig))
        in_pages.append(asyncio.run(cold_sync(kubeconfig)) / plain_s)
        streamed.append(asyncio.run(cold_sync(kubeconfig, Stream.ALWAYS)) / plain_s)
    memory = [memory_of_a_fresh_process(kubeconfig) for _ in range(3)]
    assert all(m.pods == pods for m in memory)
    of_json = median(m.rss_bytes for m in memory) / size_bytes
    each = size_bytes / pods
    print(
        f"reflector memory: {of_json:.2f} x JSON (target {MEMORY_TARGET}), {pods} Pods of {each:.0f} bytes"
    )
    print(
        f"reflector cold sync: {median(in_pages):.2f} x a plain paged list (target {SYNC_TARGET})"
    )
    print(f"reflector streaming sync, for comparison: {median(streamed):.2f} x a plain paged list")
    return of_json <= MEMORY_TARGET and median(in_pages) <= SYNC_TARGET


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="an API server that runs already")
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--measure-memory", type=Path, metavar="KUBECONFIG", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_memory:
        memory = asyncio.run(measure_memory(options.measure_memory))
        sys.stdout.write(msgspec.json.encode(memory).decode())
        return 0
    if options.kubeconfig:
        return 0 if compare(options.kubeconfig, options.pods) else 1
    with RealControlPlane(crds=()) as plane:
        return 0 if compare(plane.access.kubeconfig, options.pods) else 1


if __name__ == "__main__":
    sys.exit(main())
