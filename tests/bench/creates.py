"""
Creates per second: our client against a bare aiohttp loop that sends the same bytes to the same real API server.

``python -m tests.bench.creates`` starts a control plane of its own; with ``--kubeconfig`` it uses one that runs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kube_client.kubeconfig import load
from remuda.kube.core import POD
from tests.bench.pods import NAMESPACE, create_all, runner_pod
from tests.support.control_plane import RealControlPlane

if TYPE_CHECKING:
    from remuda.kube.core import Pod

SLICES = 9
SLICE = 400
AT_ONCE = 32
TARGET = 1.3


async def ours(kubeconfig: Path, pods: list[Pod]) -> float:
    client = KubeClient(HttpWire(load(kubeconfig)))
    began = perf_counter()
    await create_all(client, pods, at_once=AT_ONCE)
    took_s = perf_counter() - began
    await client.close()
    return took_s


async def bare(kubeconfig: Path, pods: list[Pod]) -> float:
    """Send bodies that were made beforehand, and read the answers to nothing."""
    connection = load(kubeconfig)
    credential = await connection.credentials.current()
    waiting = iter([_body(pod) for pod in pods])
    url = f"{connection.server}{POD.path(NAMESPACE)}"
    headers = {
        "Authorization": f"Bearer {credential.token}",
        "Content-Type": "application/json",
        "Accept": "application/json",
    }
    tls = connection.tls(credential)
    assert tls is not None

    async def worker(session: aiohttp.ClientSession) -> None:
        for body in waiting:
            async with session.post(url, data=body, ssl=tls) as answer:
                assert answer.status == 201
                await answer.read()

    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        began = perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(worker(session), name=f"creator {number}")
        return perf_counter() - began


def _body(pod: Pod) -> bytes:
    kind = {"apiVersion": POD.api_version, "kind": POD.name}
    return msgspec.json.encode({**kind, **msgspec.to_builtins(pod)})


def compare(kubeconfig: Path) -> bool:
    """Print the ratio and say whether the target was met. The two take turns, and take turns in being first."""
    ratios: list[float] = []
    rates: list[float] = []
    for number in range(SLICES + 1):
        mine = [runner_pod(n, f"ours-{number}") for n in range(SLICE)]
        theirs = [runner_pod(n, f"bare-{number}") for n in range(SLICE)]
        if number % 2:
            ours_s, bare_s = (
                asyncio.run(ours(kubeconfig, mine)),
                asyncio.run(bare(kubeconfig, theirs)),
            )
        else:
            bare_s, ours_s = (
                asyncio.run(bare(kubeconfig, theirs)),
                asyncio.run(ours(kubeconfig, mine)),
            )
        if number:  # the first round warms the server up
            ratios.append(ours_s / bare_s)
            rates.append(SLICE / ours_s)
    print(
        f"creates: {median(ratios):.2f} x the time of a bare loop (target {TARGET}), "
        f"{median(rates):.0f} creates/s, {AT_ONCE} at once"
    )
    return median(ratios) <= TARGET


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="an API server that runs already")
    options = parser.parse_args()
    if options.kubeconfig:
        return 0 if compare(options.kubeconfig) else 1
    with RealControlPlane(crds=()) as plane:
        return 0 if compare(plane.access.kubeconfig) else 1


if __name__ == "__main__":
    sys.exit(main())
