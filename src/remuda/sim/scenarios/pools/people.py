"""Those who use the fleet in a storm: one who changes its mind about everything, and a forge full of jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.kube.core import NODE, POD
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL, Autoscaling, Provisioning, Rollout
from remuda.ports.kube import Cascade, Conflict, NotFound, Query, Seen
from remuda.sim.ids import SeededIds
from remuda.sim.scenarios.pools.stage import PERSON, SPACE, image

if TYPE_CHECKING:
    from remuda.kube.core import Pod
    from remuda.sim.scenarios.pools.checks import FailStatic
    from remuda.sim.scenarios.pools.stage import Stage

IMAGES = ("registry.test/runner:1", "registry.test/runner:2", "registry.test/runner:3")
QUEUES = ("a", "b")
JOB_S = (20.0, 240.0)


class Person:
    """Rolls, rolls back, pauses, cordons, renames, and now and then deletes an idle runner by hand."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._chance = SeededIds(stage.world.seed, PERSON).random
        self._generation = dict.fromkeys(QUEUES, 1)
        self._cordoned = ""

    def pool(self, queue: str) -> str:
        return f"mac-{queue}{self._generation[queue]}"

    async def make(self, queue: str) -> None:
        """Make the pool that serves a queue, or its successor."""
        name = self.pool(queue)
        self._stage.dispatch.serves[name] = queue
        await self._stage.pool(
            name,
            labels=(f"macos-{name}",),
            replicas=2,
            autoscaling=Autoscaling(
                enabled=True, min_warm=2, max_replicas=7, scale_down_cooldown_seconds=60
            ),
            rollout=Rollout(max_concurrent_percent=30, progress_deadline_seconds=300),
            provisioning=Provisioning(max_concurrent=5, start_timeout_seconds=180),
        )

    async def meddle(self) -> None:
        """Change something every so often, until cancelled."""
        deeds = (self._roll, self._roll, self._roll, self._cordon, self._rename, self._pause)
        while True:
            await asyncio.sleep(self._chance.uniform(20.0, 90.0))
            deed = self._chance.choice((*deeds, self._delete_idle, self._warmth))
            await deed(self._chance.choice(QUEUES))

    async def _roll(self, queue: str) -> None:
        wanted = self._chance.choice(IMAGES)
        await self._stage.change(self.pool(queue), MergePatch(image(wanted)), f"to {wanted}")

    async def _pause(self, queue: str) -> None:
        paused = self._chance.random() < 0.5  # noqa: PLR2004 - one or the other
        patch = MergePatch({"spec": {"rollout": {"paused": paused}}})
        await self._stage.change(self.pool(queue), patch, "pauses" if paused else "goes on")

    async def _warmth(self, queue: str) -> None:
        warm = self._chance.choice((0, 1, 2, 3))
        patch = MergePatch({"spec": {"autoscaling": {"minWarm": warm}}})
        await self._stage.change(self.pool(queue), patch, f"minWarm {warm}")

    async def _cordon(self, _queue: str) -> None:
        if self._cordoned:
            await self.uncordon()
            return
        self._cordoned = self._chance.choice(sorted(self._stage.disks))
        await self._schedulable(self._cordoned, unschedulable=True)

    async def uncordon(self) -> None:
        if self._cordoned:
            await self._schedulable(self._cordoned, unschedulable=False)
        self._cordoned = ""

    async def _schedulable(self, node: str, *, unschedulable: bool) -> None:
        self._note("cordon" if unschedulable else "uncordon", f"nodes/{node}", "ok")
        patch = MergePatch({"spec": {"unschedulable": unschedulable}})
        await self._stage.person.patch(NODE, node, patch)

    async def _rename(self, queue: str) -> None:
        old = self.pool(queue)
        cascade = self._chance.choice((Cascade.BACKGROUND, Cascade.FOREGROUND))
        self._generation[queue] += 1
        self._note("rename", f"runnerpools/{SPACE}/{old}", self.pool(queue), cascade.value)
        await self._stage.person.delete(RUNNER_POOL, old, namespace=SPACE, cascade=cascade)
        await self.make(queue)

    async def _delete_idle(self, _queue: str) -> None:
        found = await self._stage.person.list(
            POD, Query(namespace=SPACE, labels="remuda.dev/runner,!remuda.dev/owner")
        )
        idle = [pod for pod in found.items if _is_idle(pod)]
        if not idle:
            return
        pod = self._chance.choice(idle)
        self._note("delete", f"pods/{SPACE}/{pod.name}", "ok", "by hand, as it is idle")
        seen = Seen(uid=pod.uid, resource_version=pod.resource_version)
        try:
            await self._stage.person.delete(POD, pod.name, namespace=SPACE, seen=seen)
        except (Conflict, NotFound):
            return

    def _note(self, verb: str, what: str, outcome: str, why: str = "") -> None:
        self._stage.world.trace.note(PERSON, verb, what, outcome, why)


def _is_idle(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase in {"Pending", "Running"}


async def jobs_arrive(stage: Stage, every_s: float) -> None:
    """Let jobs arrive by chance, until cancelled."""
    chance = SeededIds(stage.world.seed, "forge").random
    while True:
        await asyncio.sleep(chance.uniform(0.2, 1.8) * every_s)
        stage.job(chance.choice(QUEUES), round(chance.uniform(*JOB_S)))


async def dispatch_fails(stage: Stage, static: FailStatic) -> None:
    """Let dispatch be away for a minute or three now and then, until cancelled."""
    chance, world = SeededIds(stage.world.seed, "outages").random, stage.world
    try:
        while True:
            await asyncio.sleep(chance.uniform(120.0, 400.0))
            world.trace.note("dispatch", "outage", "-", "begins")
            stage.dispatch.is_down, static.down_since = True, world.loop.time()
            await asyncio.sleep(chance.uniform(60.0, 180.0))
            world.trace.note("dispatch", "outage", "-", "ends")
            stage.dispatch.is_down, static.down_since = False, None
    finally:
        stage.dispatch.is_down, static.down_since = False, None
