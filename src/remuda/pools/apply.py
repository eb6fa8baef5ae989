"""
Carry out actions on runners and pools, through the API server and dispatch. No policy lives here.

Every action is safe to repeat and carries what it saw. A conflict means that the world moved on: nothing was done, and
the pool is looked at again. An answer that never came is neither: the same thing is tried again under the same name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import structlog

from remuda.kube.core import POD, SERVICE_ACCOUNT
from remuda.kube.names import MARK, MARKED_AT, POOL, POOL_DRAIN, RUNNER
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pod import service_account
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.kube.runner_view import runner_of
from remuda.kube.times import whole_seconds
from remuda.model.runner import Phase
from remuda.pools.decide.actions import Cause
from remuda.ports.kube import (
    AlreadyExists,
    KubeError,
    Manifest,
    NotFound,
    Seen,
    Throttled,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.kube.core import Pod, ServiceAccount
    from remuda.kube.patches import JsonValue
    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.runner import Runner
    from remuda.pools.decide.actions import MarkRunner, ReapRunner, UnmarkRunner
    from remuda.pools.reins import Reins
    from remuda.pools.reports import Reports

log = structlog.get_logger(__name__)

Job = Callable[[], Awaitable[None]]
"""One thing to do."""

_EVENTS: Final = {
    Cause.START_TIMEOUT: "StartTimedOut",
    Cause.UNSCHEDULABLE: "Unschedulable",
    Cause.NODE_DRAIN: "RetiredForNodeDrain",
}
_WARNINGS: Final = frozenset({Cause.START_TIMEOUT, Cause.UNSCHEDULABLE})


class Applier:
    """Does one thing at a time; ``all_of`` does many at once, within bounds."""

    def __init__(self, reins: Reins, reports: Reports) -> None:
        self._reins = reins
        self._reports = reports
        self._kube, self._guards = reins.kube, reins.settings.guards
        self._namespace = reins.settings.namespace

    # --- Making ------------------------------------------------------------------------------------------------------

    async def create(
        self, pool: RunnerPool, name: str, pod: bytes, *, again: bool = False
    ) -> Pod | None:
        """
        Make a runner: its ServiceAccount, then its Pod. With ``again``, an earlier try was not answered.

        What is there already is ours, from a try whose answer was lost. If the server says that there is no Pod, the
        ServiceAccount goes again and the name is forgotten; if it says nothing, or "later", the name is kept for that.
        """
        account: ServiceAccount | None = None
        try:
            try:
                account = await self._kube.create(SERVICE_ACCOUNT, service_account(pool, name))
            except AlreadyExists:
                log.info("service account is there already", runner=name)
            try:
                return await self._kube.create(POD, Manifest(pod, self._namespace))
            except AlreadyExists:
                log.info("runner is there already", runner=name)
                return None
        except (Unavailable, Throttled):
            raise
        except KubeError:
            # A quota refuses what it has let in before: ask whether the earlier try did it.
            if again and await self.is_there(name, pool.name):
                return None
            self._reins.expectations.absent(pool.name, name)
            await self._take_back(account or self._reins.view.service_account(name))
            raise

    async def _take_back(self, account: ServiceAccount | None) -> None:
        """Remove the ServiceAccount of a Pod that was refused. What fails here is left to the sweep."""
        if account is None:
            return
        try:
            await self._delete_account(account)
        except KubeError as error:
            log.info("service account left to the sweep", name=account.name, error=str(error))

    async def is_there(self, name: str, pool: str) -> bool:
        """Ask the server itself whether a pool has a runner of this name. Raises if it does not say."""
        try:
            pod = await self._kube.get(POD, name, namespace=self._namespace)
        except NotFound:
            return False
        # One that a person took out of its pool will never be seen among its runners.
        return pod.labels.get(RUNNER) == "true" and pod.labels.get(POOL) == pool

    # --- Removing ----------------------------------------------------------------------------------------------------

    async def reap(self, action: ReapRunner, pool: str) -> None:
        """
        Remove a runner: report it, delete its Pod. Its ServiceAccount goes when the Pod has: see ``accounts``.

        One that ended is reported first, while there is something to report about. One that lives is reported only
        once it is deleted: had dispatch given it a job meanwhile, the delete conflicts, and a report would have taken
        that job from under it.
        """
        runner, cause = action.runner, action.cause
        if self._guards.deletion_first and runner.deleting_since is not None:
            return
        if not runner.uid:
            return  # made, but not seen yet: there is nothing to say about it until it is
        pod = self._reins.view.pod(runner.name)
        if runner.phase is Phase.ENDED:
            await self._reports.stopped(runner, cause)
        await self._delete_pod(runner)
        self._reins.expectations.reaped(runner, self._reins.clock.now())
        if runner.phase is not Phase.ENDED:
            self._say_reaped(pod, action)
            await self._reports.stopped(runner, cause)
        self._reins.metrics.reaped(pool, cause)
        log.info("runner reaped", runner=runner.name, pool=pool, cause=cause, why=action.why)

    async def _delete_pod(self, runner: Runner) -> None:
        seen = Seen(uid=runner.uid, resource_version=runner.version)
        try:
            await self._kube.delete(
                POD,
                runner.name,
                namespace=self._namespace,
                seen=seen if self._guards.preconditions else None,
            )
        except NotFound:
            log.info("runner is gone already", runner=runner.name)

    async def _delete_account(self, account: ServiceAccount) -> None:
        await self._kube.delete(
            SERVICE_ACCOUNT,
            account.name,
            namespace=self._namespace,
            seen=Seen(uid=account.uid),
        )

    def _say_reaped(self, pod: Pod | None, action: ReapRunner) -> None:
        if pod is None or pod.uid != action.runner.uid:
            return
        reason = _EVENTS.get(action.cause, "RunnerReaped")
        warning = action.cause in _WARNINGS
        self._reins.events.record(POD, pod, reason, action.why, warning=warning)

    # --- Marking -----------------------------------------------------------------------------------------------------

    async def mark(self, action: MarkRunner) -> None:
        """Ask a runner to make room: dispatch answers its next poll with 410."""
        at = _spelled(self._reins.clock.now())
        pod = await self._patch_mark(action.runner, target=action.target, at=at)
        self._reins.events.record(POD, pod, "RollMarked", action.why)
        log.info("runner marked", runner=action.runner.name, why=action.why)

    async def unmark(self, action: UnmarkRunner) -> None:
        await self._patch_mark(action.runner, target=None, at=None)
        log.info("mark taken away", runner=action.runner.name, why=action.why)

    async def _patch_mark(self, runner: Runner, *, target: str | None, at: str | None) -> Pod:
        meta: dict[str, JsonValue] = {"labels": {MARK: target}, "annotations": {MARKED_AT: at}}
        if self._guards.preconditions:
            meta |= {"uid": runner.uid, "resourceVersion": runner.version}
        pod = await self._kube.patch(
            POD, runner.name, MergePatch({"metadata": meta}), namespace=self._namespace
        )
        self._reins.expectations.wrote(runner, runner_of(pod))
        return pod

    # --- The pool itself ---------------------------------------------------------------------------------------------

    async def hold(self, pool: RunnerPool) -> RunnerPool:
        """Put our finalizer on a pool, before its first runner is made."""
        return await self._patch_finalizers(pool, (*pool.metadata.finalizers, POOL_DRAIN))

    async def release(self, pool: RunnerPool, why: str) -> None:
        """Let a deleted pool go."""
        others = tuple(f for f in pool.metadata.finalizers if f != POOL_DRAIN)
        if others == pool.metadata.finalizers:
            return
        try:
            await self._patch_finalizers(pool, others)
        except NotFound:
            return
        log.info("pool released", pool=pool.name, why=why)

    async def _patch_finalizers(self, pool: RunnerPool, finalizers: tuple[str, ...]) -> RunnerPool:
        meta: dict[str, JsonValue] = {
            "uid": pool.uid,
            "resourceVersion": pool.resource_version,
            "finalizers": list(finalizers),
        }
        patch = MergePatch({"metadata": meta})
        return await self._kube.patch(RUNNER_POOL, pool.name, patch, namespace=self._namespace)

    # --- Many at once ------------------------------------------------------------------------------------------------

    async def all_of(self, jobs: Iterable[Job]) -> list[KubeError]:
        """Do all of it, a bounded number at once. One that fails stops no other; what failed is returned."""
        todo = tuple(jobs)
        waiting = iter(todo)
        errors: list[KubeError] = []

        async def work() -> None:
            for job in waiting:
                try:
                    await job()
                except KubeError as error:
                    errors.append(error)

        async with asyncio.TaskGroup() as group:
            for number in range(min(len(todo), self._reins.settings.writes_max)):
                group.create_task(work(), name=f"apply {number}")
        return errors


def _spelled(moment: datetime) -> str:
    return whole_seconds(moment).strftime("%Y-%m-%dT%H:%M:%SZ")
