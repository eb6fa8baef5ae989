"""
A fleet on a real API server: hollow hosts that boot in half a second, jobs, and a record of every version.

What dispatch would do is done here by its rules: it stamps the owner before it delivers, only if the Pod is still as it
was read, and sends home whom a roll marked, only if the mark is for what the pool wants now.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kube_client.kubeconfig import load
from remuda.adapters.system import SystemClock, SystemIds
from remuda.kube.core import EVENT, NAMESPACE, NODE, POD, SERVICE_ACCOUNT, Namespace
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import Conflict, KubeError, Manifest, NotFound, Query
from remuda.sim.fleet.desk import Deliver, Exit, Job
from remuda.sim.fleet.host import HollowHost, HostSettings
from tests.support.eventually import eventually
from tests.support.history import (
    MARK,
    OWNER,
    POOL,
    Recorder,
    is_alive,
    is_busy,
    is_idle,
    is_stale,
    is_warm,
)
from tests.support.manifests import a_pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from remuda.kube.core import Pod
    from remuda.kube.patches import JsonValue
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube
    from remuda.sim.fleet.desk import Desk, Told
    from tests.support.history import Instant
    from tests.support.raw import Json

HOSTS = 4
VMS = 12
BOOT_S = 0.4
HOLD_S = 0.2
RENEW_S = 1.5
UNTIL_TOLD_S = float("inf")
CONVERGED_S = 90.0


class JobDesk:
    """Dispatch for the hosts of one namespace."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock
        self._waiting: dict[str, list[Job]] = defaultdict(list)
        self.held: dict[str, tuple[Pod, Job]] = {}
        """By the job's name: the runner that got it, as it was stamped."""
        self.sends_home = True
        """Whether marked runners are told to go. While they are not, their marks stay."""

    def queue(self, pool: str, name: str, lasts_s: float = UNTIL_TOLD_S) -> None:
        self._waiting[pool].append(Job(name, pool, lasts_s))

    def waiting(self, pool: str) -> int:
        return len(self._waiting[pool])

    def forget_waiting(self) -> None:
        self._waiting.clear()

    async def poll(self, pod: Pod) -> Told:
        if self.sends_home and MARK in pod.labels and await self._is_sent_home(pod):
            return Exit("it makes room for the roll")
        waiting = self._waiting[pod.labels[POOL]]
        if waiting and is_warm(pod):
            job = waiting.pop(0)
            if stamped := await self._stamp(pod):
                self.held[job.name] = (stamped, job)
                return Deliver(job)
            waiting.insert(0, job)
        await self._clock.sleep(HOLD_S)
        return None

    async def finish(self, name: str) -> None:
        """End a job. The Pod is touched, so that its host looks at once."""
        pod, job = self.held[name]
        job.lasts_s = 0.0
        touch = MergePatch({"metadata": {"annotations": {"test/finish": name}}})
        await self._kube.patch(POD, pod.name, touch, namespace=pod.namespace)

    async def _stamp(self, pod: Pod) -> Pod | None:
        changes: dict[str, JsonValue] = {
            "labels": {OWNER: "acme"},
            "resourceVersion": pod.resource_version,
        }
        try:
            return await self._kube.patch(
                POD, pod.name, MergePatch({"metadata": changes}), namespace=pod.namespace
            )
        except (Conflict, NotFound):
            return None  # it is not what we read: the next poll reads it anew

    async def _is_sent_home(self, pod: Pod) -> bool:
        try:
            pool = await self._kube.get(RUNNER_POOL, pod.labels[POOL], namespace=pod.namespace)
            fresh = await self._kube.get(POD, pod.name, namespace=pod.namespace)
        except NotFound:
            return False
        observed = pool.status.observed_generation == pool.metadata.generation
        named = fresh.labels.get(MARK) == pool.status.template_hash
        return observed and named and is_idle(fresh) and is_stale(pool, fresh)


class Fleet:
    """One test's namespace with its hosts. Reads are from the record; waits are bounded."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace
        self.clock = SystemClock()
        self.recorder = Recorder(kube, namespace, self.clock)
        self.desk = JobDesk(kube, self.clock)

    @property
    def now(self) -> Instant:
        return self.recorder.now

    async def create_pool(self, name: str, replicas: int, **spec: Json) -> RunnerPool:
        wanted = {
            "os": "darwin",
            "fleet": self.namespace,
            "replicas": replicas,
            "provisioning": {"maxConcurrent": 100},
            "rollout": {"maxConcurrentPercent": 10},
            "resources": {"cpu": 1, "memory": "1Gi"},
        }
        body = json.dumps(a_pool(name, **{**wanted, **spec})).encode()
        return await self._recorded(
            await self.kube.create(RUNNER_POOL, Manifest(body, self.namespace))
        )

    async def change_pool(self, name: str, **spec: Json) -> RunnerPool:
        patch = MergePatch({"spec": spec})
        return await self._recorded(
            await self.kube.patch(RUNNER_POOL, name, patch, namespace=self.namespace)
        )

    async def _recorded(self, pool: RunnerPool) -> RunnerPool:
        written = int(pool.resource_version)

        def seen() -> bool:
            held = self.now.pools.get(pool.name)
            return held is not None and int(held.resource_version) >= written

        await self.until(seen)
        return pool

    async def warm(self, pool: str, count: int) -> None:
        await self.until(lambda: len(self.runners(pool, warm=True)) >= count)

    async def busy(self, pool: str, count: int, lasts_s: float = UNTIL_TOLD_S) -> list[str]:
        """Hand out jobs and wait until runners hold them; return the jobs' names."""
        names = [f"{pool}-job-{len(self.desk.held) + n}" for n in range(count)]
        for name in names:
            self.desk.queue(pool, name, lasts_s)
        await self.until(lambda: all(name in self.desk.held for name in names))
        pods = {self.desk.held[name][0].name for name in names}
        await self.until(lambda: all(is_busy(p) for n, p in self.now.pods.items() if n in pods))
        return names

    def holder(self, job: str) -> str:
        return self.desk.held[job][0].name

    def runners(self, pool: str, *, warm: bool = False) -> list[Pod]:
        runners = self.now.runners(pool)
        return [pod for pod in runners if is_warm(pod)] if warm else runners

    def stale(self, pool: str) -> list[Pod]:
        wanted = self.now.pools[pool]
        return [p for p in self.now.runners(pool) if is_alive(p) and is_stale(wanted, p)]

    def is_rolled(self, pool: str) -> bool:
        """Whether the pool has exactly what it wants: all current, all warm or busy, nobody on the way out."""
        wanted = self.now.pools[pool]
        runners = self.now.runners(pool)
        ready = [p for p in runners if (is_warm(p) or is_busy(p)) and not is_stale(wanted, p)]
        return len(ready) == len(runners) == wanted.spec.replicas

    async def until(self, met: Callable[[], bool], within_s: float = CONVERGED_S) -> None:

        async def probe() -> str:
            return "" if met() else self.describe()

        await eventually(probe, lambda unmet: not unmet, within_s=within_s)

    async def described(self) -> str:
        """Return what the cluster shows of the namespace, as JSON: Pods as they were at every version, and Events."""
        steps = await self.recorder.caught_up()
        events = await self.kube.list(EVENT, Query(namespace=self.namespace))
        seen = [step.object for step in steps]
        return "\n".join(msgspec.json.encode(item).decode() for item in (*seen, *events.items))

    def describe(self) -> str:
        """Say in a line per pool what is there, for a wait that was in vain."""
        pools = {*self.now.pools, *(pod.labels[POOL] for pod in self.now.pods.values())}
        lines = []
        for name in sorted(pools):
            runners, pool = self.now.runners(name), self.now.pools.get(name)
            counts = Counter(_state(pod) for pod in runners)
            said = () if pool is None else pool.status.conditions
            troubles = [f"{c.type}: {c.message}" for c in said if c.type != "Ready"]
            wanted = "gone" if pool is None else f"wants {pool.spec.replicas}"
            stale = 0 if pool is None else len(self.stale(name))
            lines.append(f"{name} {wanted}, has {dict(counts)}, {stale} stale; {troubles}")
        return "\n".join(lines) or "no pools"


@asynccontextmanager
async def a_fleet(
    kubeconfig: Path, namespace: str, desk: Desk | None = None
) -> AsyncIterator[Fleet]:
    """
    Make the namespace and its hosts, all of this process, and take the hosts away again at the end.

    The hosts ask ``desk`` for work; without one the fleet's own.
    """
    kube = KubeClient(HttpWire(load(kubeconfig)))
    hosts_kube = KubeClient(HttpWire(load(kubeconfig)))
    fleet = Fleet(kube, namespace)
    names = [f"{namespace}-host-{n}" for n in range(HOSTS)]
    try:
        await kube.create(NAMESPACE, Namespace(metadata=ObjectMeta(name=namespace)))
        await eventually(lambda: _exists(kube, namespace))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fleet.recorder.run(), name="recorder")]
            for name in names:
                settings = HostSettings(
                    name=name,
                    fleet=namespace,
                    vms=VMS,
                    boot_s=BOOT_S,
                    teardown_s=0.05,
                    renew_s=RENEW_S,
                )
                host = HollowHost(
                    hosts_kube,
                    settings,
                    clock=fleet.clock,
                    ids=SystemIds(),
                    desk=desk or fleet.desk,
                )
                tasks.append(group.create_task(host.run(), name=name))
            yield fleet
            for task in tasks:
                task.cancel()
    finally:
        for name in names:
            try:
                await kube.delete(NODE, name)
            except KubeError:
                continue
        await hosts_kube.close()
        await kube.close()


def _state(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "terminating"
    if not is_alive(pod):
        return "ended"
    if is_busy(pod):
        return "busy"
    return "warm" if is_warm(pod) else "starting"


async def _exists(kube: Kube, namespace: str) -> bool:
    try:
        await kube.get(SERVICE_ACCOUNT, "default", namespace=namespace)
    except NotFound:
        return False
    return True
