"""What the host operator sees: Hosts and their Nodes, followed; and the Pods of one host, asked for when it matters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.control.reflector import Reflector
from remuda.kube.core import NODE, POD
from remuda.kube.host import HOST
from remuda.kube.names import FLEET, RUNNER, VM, VM_CLEANUP
from remuda.ports.kube import Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.control.cache import Key
    from remuda.hosts.settings import HostSettings
    from remuda.kube.core import Node, Pod
    from remuda.kube.host import Host
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

_OVER = frozenset({"Succeeded", "Failed"})


class HostsView:
    """``run`` keeps it current; nothing may act on it before ``wait_synced``."""

    def __init__(self, kube: Kube, settings: HostSettings, *, clock: Clock, ids: Ids) -> None:
        self._namespace = settings.namespace
        how = settings.reflector
        within = Query(namespace=settings.namespace)
        self.hosts_seen: Reflector[Host] = Reflector(
            kube, HOST, within, clock=clock, ids=ids, settings=how
        )
        self.nodes: Reflector[Node] = Reflector(
            kube, NODE, Query(labels=FLEET), clock=clock, ids=ids, settings=how
        )
        self._wakes: list[Callable[[str], None]] = []
        self._node_facts: dict[Key, tuple[object, ...]] = {}
        self.hosts_seen.on_change(lambda key: self._wake(key.name))
        self.nodes.on_change(self._node_changed)

    async def run(self) -> None:
        """Follow the server until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hosts_seen.run(), name="view: hosts")
            group.create_task(self.nodes.run(), name="view: nodes")

    @property
    def synced(self) -> bool:
        return self.hosts_seen.synced and self.nodes.synced

    async def wait_synced(self) -> None:
        await self.hosts_seen.wait_synced()
        await self.nodes.wait_synced()

    def on_news(self, wake: Callable[[str], None]) -> None:
        """Have ``wake`` told the name of every Host that may have news, and now and then of all."""
        self._wakes.append(wake)

    def host(self, name: str) -> Host | None:
        return self.hosts_seen.get(name, namespace=self._namespace)

    def hosts(self) -> tuple[Host, ...]:
        return self.hosts_seen.all()

    def node(self, name: str) -> Node | None:
        """Return the Node of a Host. They have one name."""
        return self.nodes.get(name)

    def _node_changed(self, key: Key) -> None:
        """Wake the Host of a Node, but not for a heartbeat."""
        node = self.nodes.get(key.name)
        facts = () if node is None else _facts(node)
        if self._node_facts.get(key) == facts:
            return
        self._node_facts[key] = facts
        self._wake(key.name)

    def _wake(self, name: str) -> None:
        for wake in self._wakes:
            wake(name)


def _facts(node: Node) -> tuple[object, ...]:
    ready = next((c.status for c in node.status.conditions if c.type == "Ready"), "")
    return (node.uid, ready, node.spec.unschedulable, node.metadata.deletion_timestamp)


async def vm_pods_on(kube: Kube, node: str) -> tuple[str, ...]:
    """Return the Pods of a host that have a VM, or may have one. Asks the server: this decides over running work."""
    listing = await kube.list(POD, Query(fields=f"spec.nodeName={node}"))
    return tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in listing.items if has_vm(pod)))


def has_vm(pod: Pod) -> bool:
    """Say whether a Pod has a VM on its host. The agent's finalizer says so even after the Pod's end."""
    if VM_CLEANUP in pod.metadata.finalizers:
        return True
    if pod.status.phase in _OVER:
        return False
    asks = any(VM in c.resources.requests or VM in c.resources.limits for c in pod.spec.containers)
    return asks or pod.labels.get(RUNNER) == "true"
