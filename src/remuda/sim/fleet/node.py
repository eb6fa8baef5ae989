"""A hollow host's Node and Lease: made, kept alive, kept Ready, and told which images are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from remuda.control.backoff import Backoff
from remuda.kube.core import (
    LEASE,
    NODE,
    Lease,
    LeaseSpec,
    Node,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    Taint,
)
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import FLEET, RUNTIME, VM, VM_HOST_TAINT, image_label
from remuda.kube.patches import MergePatch, merge_patch
from remuda.kube.times import micro_time, whole_seconds
from remuda.ports.kube import AlreadyExists, KubeError, NotFound

if TYPE_CHECKING:
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube
    from remuda.sim.fleet.host import HostSettings

LEASES = "kube-node-lease"
LEASE_S = 40
LOOK_S = 20.0
"""How often a host looks whether it still counts as Ready."""
_AGAIN = Backoff(first_s=0.5, longest_s=10.0)
_PODS_MAX = "250"


class HollowNode:
    """The host as the cluster sees it. Only what is wrong is written: a healthy host costs its Lease and nothing."""

    def __init__(self, kube: Kube, settings: HostSettings, clock: Clock) -> None:
        self._kube, self._settings, self._clock = kube, settings, clock
        self._said: set[str] = set()

    async def register(self) -> None:
        """Make the Node, or find it as it was left; however long the server does not answer."""
        failures = 0
        while True:
            try:
                await self._create()
                await self._be_ready()
            except KubeError:
                failures += 1
                await self._clock.sleep(_AGAIN.wait_s(failures, 0.5))
            else:
                return

    async def _create(self) -> None:
        settings = self._settings
        labels = {
            FLEET: settings.fleet,
            RUNTIME: settings.runtime,
            "kubernetes.io/os": settings.os,
            "kubernetes.io/hostname": settings.name,
        }
        room = {
            "cpu": settings.cpu,
            "memory": settings.memory,
            "pods": _PODS_MAX,
            VM: str(settings.vms),
        }
        info = NodeSystemInfo(operating_system=settings.os, kubelet_version="hollow")
        node = Node(
            metadata=ObjectMeta(name=settings.name, labels=labels),
            spec=NodeSpec(taints=(Taint(key=VM_HOST_TAINT, effect="NoSchedule"),)),
            status=NodeStatus(
                capacity=room, allocatable=room, conditions=(self._ready(),), node_info=info
            ),
        )
        try:
            await self._kube.create(NODE, node)
        except AlreadyExists:
            return

    def _ready(self) -> Condition:
        now = whole_seconds(self._clock.now())
        return Condition(
            type="Ready",
            status="True",
            reason="AgentReady",
            message="The agent runs",
            last_heartbeat_time=now,
            last_transition_time=now,
        )

    async def renew(self) -> None:
        """Show, all the time, that the host is alive."""
        while True:
            try:
                await self._renew_once()
            except KubeError:
                await self._clock.sleep(1.0)
            else:
                await self._clock.sleep(self._settings.renew_s)

    async def _renew_once(self) -> None:
        name, now = self._settings.name, micro_time(self._clock.now())
        try:
            patch = MergePatch({"spec": {"renewTime": now}})
            await self._kube.patch(LEASE, name, patch, namespace=LEASES)
        except NotFound:
            spec = LeaseSpec(holder_identity=name, lease_duration_seconds=LEASE_S, renew_time=now)
            lease = Lease(metadata=ObjectMeta(name=name, namespace=LEASES), spec=spec)
            await self._kube.create(LEASE, lease)

    async def stay_ready(self) -> None:
        """Take back what others wrote about our silence once we can speak again."""
        while True:
            await self._clock.sleep(LOOK_S)
            try:
                await self._be_ready()
            except KubeError:
                continue  # the next look comes soon enough

    async def _be_ready(self) -> None:
        node = await self._kube.get(NODE, self._settings.name)
        if any(c.type == "Ready" and c.status == "True" for c in node.status.conditions):
            return
        # Conditions of others (StartsFailing) stay; so the patch is conditional, as the list goes whole.
        others = tuple(c for c in node.status.conditions if c.type != "Ready")
        status = msgspec.structs.replace(node.status, conditions=(*others, self._ready()))
        after = msgspec.structs.replace(node, status=status)
        patch = merge_patch(node, after, conditional=True)
        await self._kube.patch(NODE, node.name, patch, subresource="status")

    async def has_image(self, image: str) -> None:
        """Say on the Node that an image is on the host."""
        if image in self._said:
            return
        patch = MergePatch({"metadata": {"labels": {image_label(image): "ready"}}})
        await self._kube.patch(NODE, self._settings.name, patch)
        self._said.add(image)
