"""A control plane with its controllers at work, in memory and on virtual time, for the tests of them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda.kube.times import micro_time
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from remuda.standalone.collector import Collector
from remuda.standalone.event_expiry import EventExpiry
from remuda.standalone.kinds import BUILT_IN, Kinds, ResourceKind
from remuda.standalone.namespaces import Namespaces
from remuda.standalone.node_lifecycle import NodeLifecycle
from remuda.standalone.rest import Rest
from remuda.standalone.scheduler import Scheduler
from remuda.standalone.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from remuda.standalone.objects import Obj

VM = "remuda.dev/vm"


@dataclass
class World:
    """A control plane without HTTP: the verbs, and shorthands for what the tests do with them."""

    store: Store
    rest: Rest
    clock: SimClock

    def kind(self, plural: str) -> ResourceKind:
        return next(k for k in self.rest.kinds if k.plural == plural)

    async def create(self, plural: str, name: str, namespace: str = "ci", **parts: Any) -> Obj:  # noqa: ANN401 - JSON
        meta = {"name": name, **parts.pop("metadata", {})}
        kind = self.kind(plural)
        home = namespace if kind.namespaced else ""
        return await self.rest.create(kind, home, {"metadata": meta, **parts})

    def get(self, plural: str, name: str, namespace: str = "ci") -> Obj | None:
        kind = self.kind(plural)
        return self.store.get(kind, namespace if kind.namespaced else "", name)

    def names(self, plural: str, namespace: str = "ci") -> list[str]:
        kind = self.kind(plural)
        found = self.store.objects(kind, namespace if kind.namespaced else "")
        return [obj["metadata"]["name"] for obj in found]

    async def delete(self, plural: str, name: str, namespace: str = "ci", **how: Any) -> None:  # noqa: ANN401 - options
        kind = self.kind(plural)
        await self.rest.delete(kind, namespace if kind.namespaced else "", name, **how)

    async def patch(
        self, plural: str, name: str, change: Obj, namespace: str = "ci", *, subresource: str = ""
    ) -> Obj:
        kind, body = self.kind(plural), json.dumps(change).encode()
        home = namespace if kind.namespaced else ""
        merge = "application/merge-patch+json"
        return await self.rest.patch(kind, home, name, body, merge, subresource=subresource)

    async def a_node(self, name: str = "mini", vms: int = 2, **spec: object) -> None:
        await self.create("nodes", name, spec=spec)
        await self.heartbeat(name, vms)

    async def heartbeat(self, name: str = "mini", vms: int = 2) -> None:
        now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        room = {"cpu": "8", "memory": "16Gi", "pods": "20", VM: str(vms)}
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
        status = {"allocatable": room, "capacity": room, "conditions": [ready]}
        await self.patch("nodes", name, {"status": status}, subresource="status")

    async def renew(self, name: str = "mini") -> None:
        kind = self.kind("leases")
        lease = self.store.get(kind, "kube-node-lease", name)
        spec = {"holderIdentity": name, "renewTime": micro_time(self.clock.now())}
        if lease is None:
            await self.create("leases", name, "kube-node-lease", spec=spec)
        else:
            await self.rest.update(kind, "kube-node-lease", name, lease | {"spec": spec})

    async def a_pod(self, name: str, vms: int = 1) -> None:
        limits = {"requests": {VM: str(vms)}, "limits": {VM: str(vms)}}
        container = {"name": "main", "image": "vm", "resources": limits}
        await self.create("pods", name, spec={"containers": [container]})

    def node_of(self, pod: str) -> str | None:
        found = self.get("pods", pod)
        assert found is not None
        node: str | None = found["spec"].get("nodeName")
        return node

    def why_waiting(self, pod: str) -> str:
        found = self.get("pods", pod)
        assert found is not None
        conditions = found["status"].get("conditions") or []
        return next(
            (f"{c['reason']}: {c['message']}" for c in conditions if c["status"] == "False"), ""
        )


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    clock, ids = SimClock(asyncio.get_running_loop()), SeededIds(1, "plane")
    store, kinds = Store(), Kinds(BUILT_IN)
    rest = Rest(store, kinds, clock, ids)
    namespaces = Namespaces(rest, store, kinds)
    await namespaces.bootstrap()
    loops = {
        "namespaces": namespaces.run,
        "collector": Collector(rest, store, kinds).run,
        "scheduler": Scheduler(rest, store, clock, ids).run,
        "node lifecycle": NodeLifecycle(rest, store, clock).run,
        "event expiry": EventExpiry(rest, store, clock).run,
    }
    world = World(store, rest, clock)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(loop(), name=name) for name, loop in loops.items()]
        await world.create("namespaces", "ci")
        await asyncio.sleep(0.1)
        yield world
        for task in tasks:
            task.cancel()


def scenario(play: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Turn a play in a world into a test on virtual time."""

    async def main() -> None:
        async with a_world() as world:
            await play(world)

    def test() -> None:
        run(main)

    test.__name__ = play.__name__
    test.__doc__ = play.__doc__
    return test
