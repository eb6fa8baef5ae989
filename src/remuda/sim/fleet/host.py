"""
A host without VMs: its Node, its Lease, and the life of every runner Pod that is bound to it, as the agent writes it.

It goes over ``ports.kube`` alone, so it serves the simulator and a real API server alike. It writes what a kubelet
writes: status, its own finalizer, and the last delete of a Pod that is being deleted. It decides nothing about pools.
A restart forgets the object, never the ``HostDisk``: VMs go on while their agent is away.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.control.cache import Key
from remuda.control.queue import QueueSettings, WorkQueue
from remuda.control.reflector import Reflector, ReflectorSettings
from remuda.control.tasks import run_forever
from remuda.kube.core import POD
from remuda.kube.names import RUNNER, VM_CLEANUP
from remuda.model.errors import RemudaError
from remuda.ports.kube import Query
from remuda.sim.fleet.desk import Deliver, Exit, QuietDesk
from remuda.sim.fleet.disk import HostDisk, Vm
from remuda.sim.fleet.node import HollowNode
from remuda.sim.fleet.pod_writes import PodWrites
from remuda.sim.fleet.statuses import TERMINAL, creating, delivered, ended, failed, warm

if TYPE_CHECKING:
    from remuda.kube.core import Pod
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube
    from remuda.sim.fleet.desk import Desk

POLL_AGAIN_S = 2.0
"""How long after a failed poll the next one comes."""
LATE_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """What a host is like."""

    name: str
    fleet: str
    vms: int = 2
    os: str = "darwin"
    runtime: str = "tart"
    cpu: str = "64"
    memory: str = "512Gi"
    boot_s: float = 20.0
    """How long a boot takes, from the image on the host to a guest that is ready."""
    boot_spread: float = 0.2
    """By how much of that a boot may be faster or slower, by chance."""
    pull_s: float = 0.0
    """How long the first use of an image takes, before the boot."""
    teardown_s: float = 1.0
    fails_after_s: float | None = None
    """After how long a start that cannot succeed ends its Pod as Failed. None: it hangs."""
    renew_s: float = 10.0
    reflector: ReflectorSettings = field(
        default_factory=lambda: ReflectorSettings(resync_s=60.0, relist_s=120.0)
    )


class HollowHost:
    """One life of a host's agent. ``disk`` outlives it."""

    def __init__(
        self,
        kube: Kube,
        settings: HostSettings,
        *,
        clock: Clock,
        ids: Ids,
        disk: HostDisk | None = None,
        desk: Desk | None = None,
    ) -> None:
        self.settings, self.disk = settings, disk if disk is not None else HostDisk()
        self._clock, self._ids = clock, ids
        self._desk: Desk = desk if desk is not None else QuietDesk(clock)
        self._node = HollowNode(kube, settings, clock)
        self._writes = PodWrites(kube, clock)
        query = Query(fields=f"spec.nodeName={settings.name}")
        self._pods = Reflector(kube, POD, query, clock=clock, ids=ids, settings=settings.reflector)
        self._queue: WorkQueue[Key] = WorkQueue(
            settings.name, self._look, ids, QueueSettings(workers_max=32)
        )
        self._pods.on_change(self._queue.add)
        self._polled: set[str] = set()
        self._polls: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Be a host until cancelled."""
        await self._node.register()
        loops = {
            "lease": self._node.renew,
            "health": self._node.stay_ready,
            "pods": self._pods.run,
            "vms": self._tend,
        }
        await run_forever(loops, asyncio.Event())

    # --- one Pod ------------------------------------------------------------------------------------------------

    async def _tend(self) -> None:
        await self._pods.wait_synced()
        for vm in tuple(self.disk.vms.values()):
            self._queue.add(vm.pod)  # its Pod may have gone while we were away
        async with asyncio.TaskGroup() as group:
            self._polls = group
            await self._queue.run()

    async def _look(self, key: Key) -> timedelta | None:
        pod = self._pods.get(key.name, namespace=key.namespace)
        self._bury(key, pod.uid if pod is not None else "")
        if pod is None or pod.labels.get(RUNNER) != "true":
            return None
        # Deletion is looked at first: a Pod that is terminal as well must still lose its finalizer.
        if pod.metadata.deletion_timestamp is not None:
            await self._tear_down(pod)
            return None
        if pod.status.phase in TERMINAL:
            return None
        return await self._serve(pod)

    def _bury(self, key: Key, uid: str) -> None:
        """End the VMs whose Pod is gone, or is another one by now."""
        for vm in tuple(self.disk.vms.values()):
            if vm.pod == key and vm.pod_uid != uid:
                self._end_vm(vm)

    def _end_vm(self, vm: Vm) -> None:
        now = self._clock.monotonic()
        if vm.job is not None:
            vm.job.kill(now)
        del self.disk.vms[vm.pod_uid]

    async def _tear_down(self, pod: Pod) -> None:
        vm = self.disk.vms.get(pod.uid)
        if vm is not None:
            await self._clock.sleep(self.settings.teardown_s)
            if pod.uid in self.disk.vms:
                self._end_vm(vm)
        await self._writes.release(pod)

    async def _serve(self, pod: Pod) -> timedelta | None:
        """Bring a live Pod one step further, as far as its VM is."""
        vm = self.disk.vms.get(pod.uid)
        if vm is None:
            vm = await self._create(pod)
            if vm is None:
                return None
        now = self._clock.monotonic()
        if vm.is_over(now):
            await self._writes.status(pod, failed if now >= vm.fails_at else ended)
            return None
        if now < vm.ready_at:
            return _until(min(vm.ready_at, vm.fails_at), now)
        return await self._serve_ready(pod, vm)

    async def _create(self, pod: Pod) -> Vm | None:
        if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions):
            await self._writes.status(pod, failed)  # its VM is lost, and a disk boots once
            return None
        if VM_CLEANUP not in pod.metadata.finalizers:
            await self._writes.hold(pod)  # before the host is touched
        await self._writes.status(pod, creating)
        vm = self._new_vm(pod)
        self.disk.vms[pod.uid] = vm
        self.disk.starts += 1
        return vm

    def _new_vm(self, pod: Pod) -> Vm:
        settings, disk, now = self.settings, self.disk, self._clock.monotonic()
        image = pod.spec.containers[0].image
        fetched_at = disk.fetched_at.setdefault(image, now + settings.pull_s)
        spread = settings.boot_spread * (2 * self._ids.fraction() - 1)
        boots_at = max(now, fetched_at) + settings.boot_s * (1 + spread)
        hopeless = disk.is_poisoned or image in disk.bad_images
        fails_after_s = settings.fails_after_s
        fails_at = now + fails_after_s if hopeless and fails_after_s is not None else float("inf")
        key = Key(pod.namespace, pod.name)
        ready_at = float("inf") if hopeless else boots_at
        return Vm(key, pod.uid, image, ready_at=ready_at, fails_at=fails_at)

    async def _serve_ready(self, pod: Pod, vm: Vm) -> timedelta | None:
        now = self._clock.monotonic()
        if vm.job is not None:
            await self._writes.status(pod, delivered)
            return _until(min(vm.job.ends_at, now + vm.job.look_again_s), now)
        if await self._writes.status(pod, warm):
            self.disk.started += 1
        await self._node.has_image(vm.image)
        self._start_polling(vm)
        return None

    # --- asking for work ----------------------------------------------------------------------------------------

    def _start_polling(self, vm: Vm) -> None:
        if self._polls is None or vm.pod_uid in self._polled:
            return
        self._polled.add(vm.pod_uid)
        self._polls.create_task(self._poll(vm), name=f"poll for {vm.pod}")

    async def _poll(self, vm: Vm) -> None:
        """Ask on behalf of a warm runner until it has a job, is told to go, or is gone."""
        try:
            while vm.pod_uid in self.disk.vms and vm.job is None:
                pod = self._pods.get(vm.pod.name, namespace=vm.pod.namespace)
                if pod is None or pod.uid != vm.pod_uid:
                    return
                if await self._ask(vm, pod):
                    self._queue.add(vm.pod)
                    return
        finally:
            self._polled.discard(vm.pod_uid)

    async def _ask(self, vm: Vm, pod: Pod) -> bool:
        try:
            told = await self._desk.poll(pod)
        except RemudaError:
            await self._clock.sleep(POLL_AGAIN_S)
            return False
        if pod.uid not in self.disk.vms:
            return True  # it was torn down while we asked; what it was told reached nobody
        match told:
            case Deliver(job):
                assert vm.job is None, "a VM gets at most one job"
                vm.job = job
                job.begin(self._clock.monotonic())
            case Exit():
                vm.exited_at = self._clock.monotonic()
            case None:
                return False
        return True


def _until(when: float, now: float) -> timedelta | None:
    # A little late rather than a little early: a look that finds nothing to do yet would only come again.
    return None if when == float("inf") else timedelta(seconds=max(0.0, when - now) + LATE_S)
