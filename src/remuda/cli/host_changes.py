"""
Taking a host out of service and putting it back, as patches of its Node. Decides and writes; prints nothing.

A cordoned host gets no new runner; the operator retires its idle ones (RetiredForNodeDrain), the busy ones finish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.cli.exits import Declined
from remuda.kube.core import NODE, POD
from remuda.kube.names import FLEET, RUNNER
from remuda.kube.patches import MergePatch
from remuda.kube.runner_view import runner_of
from remuda.model.runner import Phase
from remuda.ports.kube import NotFound, Query, Refused

if TYPE_CHECKING:
    from remuda.kube.core import Node, Pod
    from remuda.ports.kube import Kube


@dataclass(frozen=True, slots=True)
class OnHost:
    """The runners of a host, by how much longer they stay."""

    busy: tuple[str, ...]
    """They hold jobs: nobody ends them."""
    idle: tuple[str, ...]
    leaving: tuple[str, ...]
    """Their ends are being cleaned up."""

    @property
    def count(self) -> int:
        return len(self.busy) + len(self.idle) + len(self.leaving)


async def read_host(kube: Kube, name: str) -> Node:
    """Return the Node of a host. Nodes that are none of ours are not touched."""
    try:
        node = await kube.get(NODE, name)
    except NotFound as error:
        raise NotFound(
            f"There is no host {name}", why=error.why, fix="See what there is with: remuda hosts"
        ) from None
    if FLEET not in node.labels:
        raise Declined(
            f"{name} is no host of runners",
            why=f"its Node has no label {FLEET}",
            fix=f"See the hosts with: remuda hosts. Other Nodes are drained with: kubectl drain {name}",
        )
    return node


async def set_drained(kube: Kube, name: str, *, drained: bool) -> bool:
    """Cordon a host, or let it take runners again. Says whether that changed anything."""
    node = await read_host(kube, name)
    if node.spec.unschedulable is drained:
        return False
    # Null removes the key: a Node that was never cordoned has none either.
    await kube.patch(NODE, name, MergePatch({"spec": {"unschedulable": drained or None}}))
    return True


async def runners_on(kube: Kube, name: str, namespace: str) -> OnHost:
    """Return the runners of a host: those of all namespaces, if we may see them."""
    query = Query(labels=f"{RUNNER}=true", fields=f"spec.nodeName={name}")
    try:
        pods = (await kube.list(POD, query)).items
    except Refused:
        ours = Query(namespace=namespace, labels=query.labels, fields=query.fields)
        pods = (await kube.list(POD, ours)).items
    return sorted_out(pods)


def sorted_out(pods: tuple[Pod, ...]) -> OnHost:
    busy, idle, leaving = [], [], []
    for runner in sorted(map(runner_of, pods), key=lambda each: each.name):
        if not runner.is_alive:
            leaving.append(runner.name)
        elif runner.phase is Phase.BUSY:
            busy.append(runner.name)
        else:
            idle.append(runner.name)
    return OnHost(tuple(busy), tuple(idle), tuple(leaving))


def drain_text(on_host: OnHost) -> str:
    """Say who is still there."""
    parts = (
        (len(on_host.busy), "busy"),
        (len(on_host.idle), "idle"),
        (len(on_host.leaving), "leaving"),
    )
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "nobody is left"
