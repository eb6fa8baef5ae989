"""Nodes that look alive: created ready, with a Lease that somebody renews."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from remuda.adapters.system import SystemClock
from remuda.kube.times import micro_time, whole_seconds
from tests.support.eventually import eventually
from tests.support.space import namespaced

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.raw import Json, Raw

RENEW_S = 1.0


def node_path(name: str, subresource: str = "") -> str:
    return f"/api/v1/nodes/{name}" + (f"/{subresource}" if subresource else "")


def lease_path(name: str = "") -> str:
    return namespaced("kube-node-lease", "leases", name)


def a_node(name: str, fleet: str, *, vms: int = 2, taints: list[Json] | None = None) -> Json:
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110", "remuda.dev/vm": str(vms)}
    now = whole_seconds(SystemClock().now()).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "AgentReady",
        "message": "The agent runs",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"remuda.dev/fleet": fleet}},
        "spec": {"taints": taints} if taints else {},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


class LiveNodes:
    """Nodes of one test. What is not ``stopped`` keeps its Lease fresh, as an agent would."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._names: list[str] = []
        self._beating: set[str] = set()

    async def add(self, node: Json, **labels: str) -> str:
        """Create the Node and its Lease, and wait until the control plane lets Pods onto it."""
        node["metadata"]["labels"].update(labels)
        name: str = node["metadata"]["name"]
        (await self._raw.post("/api/v1/nodes", node)).ok()
        self._names.append(name)
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()}
        (await self._raw.post(lease_path(), {"metadata": {"name": name}, "spec": spec})).ok()
        self._beating.add(name)
        await eventually(
            lambda: self._raw.get(node_path(name)),
            lambda answer: not _has_not_ready_taint(answer.body),
        )
        return name

    def stop(self, name: str) -> None:
        """Let the Node fall silent."""
        self._beating.discard(name)

    def resume(self, name: str) -> None:
        self._beating.add(name)

    async def beat(self) -> None:
        clock = SystemClock()
        while True:
            for name in sorted(self._beating):
                await self._raw.merge(lease_path(name), {"spec": {"renewTime": _now()}})
            await clock.sleep(RENEW_S)

    async def remove(self) -> None:
        for name in self._names:
            await self._raw.delete(node_path(name))
            await self._raw.delete(lease_path(name))


@asynccontextmanager
async def live_nodes(raw: Raw) -> AsyncIterator[LiveNodes]:
    nodes = LiveNodes(raw)
    try:
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(nodes.beat(), name="heartbeats")
            yield nodes
            beating.cancel()
    finally:
        await nodes.remove()


def _has_not_ready_taint(node: Json) -> bool:
    return any(
        taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", ())
    )


def _now() -> str:
    return micro_time(SystemClock().now())
