"""
The server of the fake dispatch: stamps owners before it hands jobs over, and sends marked runners home.

It may die at any point; what it knew is in ``FakeDispatch`` or on the Pods. It deletes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.control.reflector import Reflector, ReflectorSettings
from remuda.control.tasks import run_forever
from remuda.kube.core import POD
from remuda.kube.names import DRAIN, MARK, OWNER, POOL, RUNNER, TEMPLATE
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import Conflict, KubeError, NotFound, Query
from remuda.sim.fleet.desk import Deliver, Exit
from remuda.sim.fleet.statuses import TERMINAL
from remuda.sim.trace import because

if TYPE_CHECKING:
    from remuda.control.cache import Key
    from remuda.kube.core import Pod
    from remuda.kube.runner_pool import RunnerPool
    from remuda.sim.fleet.dispatch import Claim, FakeDispatch, Poll
    from remuda.sim.world import Process

TURN_S = 5.0
"""The longest time between two looks, whoever rings."""
SWEEP_S = 15.0
CLAIM = "sim.remuda.dev/claim"
"""Annotation beside the owner: which claim stamped the Pod. Tells a stamp whose answer was lost from an older one."""


class DispatchServer:
    """One life of the server."""

    def __init__(self, process: Process, dispatch: FakeDispatch, namespace: str) -> None:
        self._process, self._dispatch, self._namespace = process, dispatch, namespace
        self._kube, self._clock = process.kube, process.clock
        settings = ReflectorSettings(resync_s=600.0, relist_s=60.0)
        runners = Query(namespace=namespace, labels=f"{RUNNER}=true")
        self._pods: Reflector[Pod] = Reflector(
            self._kube, POD, runners, clock=process.clock, ids=process.ids, settings=settings
        )
        self._pools: Reflector[RunnerPool] = Reflector(
            self._kube,
            RUNNER_POOL,
            Query(namespace=namespace),
            clock=process.clock,
            ids=process.ids,
            settings=settings,
        )
        self._pods.on_change(self._ring)
        self._pools.on_change(self._ring)

    async def run(self) -> None:
        loops = {
            "pods": self._pods.run,
            "pools": self._pools.run,
            "claims": self._serve,
            "sweep": self._sweep,
        }
        await run_forever(loops, asyncio.Event())

    def _ring(self, _key: Key) -> None:
        self._dispatch.bell.set()

    # --- answering polls ----------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        await self._pods.wait_synced()
        await self._pools.wait_synced()
        while True:
            try:
                async with asyncio.timeout(TURN_S):
                    await self._dispatch.bell.wait()
            except TimeoutError:
                pass
            self._dispatch.bell.clear()
            await self._turn()

    async def _turn(self) -> None:
        for poll in tuple(self._dispatch.polls.values()):
            if poll.pod_uid not in self._dispatch.claims:
                await self._send_home(poll)
        self._dispatch.match()
        for claim in tuple(self._dispatch.claims.values()):
            if not claim.stamped:
                await self._stamp(claim)

    async def _send_home(self, poll: Poll) -> None:
        """Answer 410 to whom a person or a roll marked; a roll's mark counts only if the newest look has it too."""
        seen = self._pods.get(poll.pod.name, namespace=poll.pod.namespace)
        if seen is None or self._exit_of(seen) is None:
            return
        try:
            live = await self._kube.get(POD, poll.pod.name, namespace=poll.pod.namespace)
        except KubeError:
            return  # the runner asks again
        told = self._exit_of(live) if live.uid == poll.pod_uid else None
        if told is not None:
            self._note("send-home", poll.pod, told.reason)
            self._dispatch.answer(poll, told)

    def _exit_of(self, pod: Pod) -> Exit | None:
        if pod.labels.get(DRAIN) == "true":
            return Exit("a person drains it")
        target = pod.labels.get(MARK)
        if not target or target == pod.labels.get(TEMPLATE):
            return None
        pool = self._pools.get(pod.labels.get(POOL, ""), namespace=self._namespace)
        current = pool.status.template_hash if pool is not None else ""
        return Exit(f"it makes room for {target}") if target == current else None

    async def _stamp(self, claim: Claim) -> None:
        """Write the owner on the Pod, then hand the job over. A Pod that cannot be stamped gets no job."""
        name, namespace = claim.pod.name, claim.pod.namespace
        try:
            pod = await self._kube.get(POD, name, namespace=namespace)
            if pod.uid != claim.pod_uid or not self._may_take(pod):
                self._give_back(claim, "the runner takes no job any more")
                return
            if pod.metadata.annotations.get(CLAIM) != claim.job.name:
                with because(f"it gets {claim.job.name}"):
                    patch = _stamp(pod, claim.job.owner, claim.job.name)
                    await self._kube.patch(POD, name, patch, namespace=namespace)
        except (Conflict, NotFound):
            self._give_back(claim, "its Pod changed under the stamp")
        except KubeError:
            self._dispatch.bell.set()  # stamped or not: the next look tells
            await self._clock.sleep(1.0)
        else:
            claim.stamped = True
            self._note("deliver", claim.pod, claim.job.name)
            if poll := self._dispatch.polls.get(claim.pod_uid):
                self._dispatch.answer(poll, Deliver(claim.job))

    def _may_take(self, pod: Pod) -> bool:
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in TERMINAL:
            return False
        return OWNER in pod.labels or self._exit_of(pod) is None

    def _give_back(self, claim: Claim, why: str) -> None:
        self._note("give-back", claim.pod, f"{claim.job.name}: {why}")
        self._dispatch.release(claim)
        if poll := self._dispatch.polls.pop(claim.pod_uid, None):
            self._dispatch.answer(poll, None)  # if it is still there, it asks again

    # --- what no poll tells -------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        await self._pods.wait_synced()
        while True:
            await self._clock.sleep(SWEEP_S)
            try:
                found = await self._kube.list(
                    POD, Query(namespace=self._namespace, labels=f"{RUNNER}=true")
                )
                pods = {pod.uid: pod for pod in found.items}
                self._close_claims(pods)
                await self._unstamp(pods)
            except KubeError:
                continue

    def _close_claims(self, pods: dict[str, Pod]) -> None:
        now = self._clock.monotonic()
        for claim in tuple(self._dispatch.claims.values()):
            pod = pods.get(claim.pod_uid)
            if pod is not None and pod.status.phase not in TERMINAL:
                continue
            if claim.job.started_at is None:
                self._give_back(claim, "its runner is gone")
            elif not claim.job.is_running(now):
                del self._dispatch.claims[claim.pod_uid]

    async def _unstamp(self, pods: dict[str, Pod]) -> None:
        """Take the owner off Pods that have no claim: a stamp landed after its job was given back."""
        for pod in pods.values():
            if OWNER not in pod.labels or pod.status.phase in TERMINAL:
                continue
            if pod.uid in self._dispatch.claims:
                continue
            with because("no claim goes with it"):
                patch = _stamp(pod, None, None)
                await self._kube.patch(POD, pod.name, patch, namespace=pod.namespace)

    def _note(self, verb: str, pod: Key, what: str) -> None:
        trace = self._process.link.trace
        if trace.on:
            trace.add(self._process.name, verb, f"pods/{pod}", "ok", what)


def _stamp(pod: Pod, owner: str | None, job: str | None) -> MergePatch:
    return MergePatch(
        {
            "metadata": {
                "resourceVersion": pod.resource_version,
                "labels": {OWNER: owner},
                "annotations": {CLAIM: job},
            }
        }
    )
