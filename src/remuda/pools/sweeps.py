"""
Sweeps for what nobody else looks at: ServiceAccounts without a Pod, and runners whose pool is gone.

Both need two proofs and a grace: our synced view, noticed twice, and the server's own word at the moment of acting. A
read that fails proves nothing, and removes nothing.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from remuda.kube.names import POOL
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.runner import Phase
from remuda.pools.accounts import remove
from remuda.pools.decide.actions import Cause, ReapRunner
from remuda.ports.kube import NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.kube.core import ServiceAccount
    from remuda.model.runner import Runner
    from remuda.pools.apply import Applier, Job
    from remuda.pools.reins import Reins

log = structlog.get_logger(__name__)

LOOP: Final = "sweeps"
NO_POOL: Final = ""
"""What the removal of orphans is counted under: their pool's series are gone with it."""


class Sweeps:
    """Level-triggered: whatever was missed, by whomever, is found by one of the next sweeps."""

    def __init__(self, reins: Reins, applier: Applier) -> None:
        self._reins, self._view, self._applier = reins, reins.view, applier
        self._grace = timedelta(seconds=reins.settings.orphan_grace_s)
        self._lonely: frozenset[str] = frozenset()
        """The UIDs of the ServiceAccounts that had no Pod at the last sweep."""
        self._poolless_since: dict[str, datetime] = {}
        """Since when runners of these pools have been seen without the pool."""

    async def run(self) -> None:
        """Sweep now and then, until cancelled. The view must be synced."""
        settings, health = self._reins.settings, self._reins.health
        with health.watched(LOOP, max(120.0, settings.sweep_s * 4)):
            while True:
                await self.sweep()
                await health.pause(LOOP, settings.sweep_s)

    async def sweep(self) -> None:
        assert self._view.synced, "what was never listed is not missing"
        jobs = [*self._accounts(), *self._runners()]
        errors = await self._applier.all_of(jobs[: self._reins.settings.sweep_max])
        for error in errors:
            log.info("orphan left for the next sweep", error=str(error))

    # --- ServiceAccounts without a Pod -------------------------------------------------------------------------------

    def _accounts(self) -> list[Job]:
        now = self._reins.clock.now()
        before = self._lonely
        found = [a for a in self._view.service_accounts.all() if self._view.pod(a.name) is None]
        self._lonely = frozenset(account.uid for account in found)
        return [
            partial(remove, self._reins, account)
            for account in found
            if account.uid in before and self._is_old(account, now)
        ]

    def _is_old(self, account: ServiceAccount, now: datetime) -> bool:
        created_at = account.metadata.creation_timestamp
        return created_at is not None and now - created_at >= self._grace

    # --- Runners without a pool --------------------------------------------------------------------------------------

    def _runners(self) -> list[Job]:
        now = self._reins.clock.now()
        named = {pod.labels.get(POOL, "") for pod in self._view.pods.all()}
        # One that names no pool is not ours to judge.
        gone = sorted(pool for pool in named - {""} if self._view.pool(pool) is None)
        self._poolless_since = {pool: self._poolless_since.get(pool, now) for pool in gone}
        due = [pool for pool, since in self._poolless_since.items() if now - since >= self._grace]
        return [partial(self._remove_runners, pool) for pool in due]

    async def _remove_runners(self, pool: str) -> None:
        """Remove what is left of a pool: those that hold a job are awaited, as when it was deleted."""
        namespace = self._reins.settings.namespace
        try:
            await self._reins.kube.get(RUNNER_POOL, pool, namespace=namespace)
        except NotFound:
            pass
        else:
            return  # our view is behind
        reaps = [self._reap(runner) for runner in self._view.runners(pool) if _may_go(runner)]
        errors = await self._applier.all_of(reaps[: self._reins.settings.sweep_max])
        for error in errors:
            log.info("orphan left for the next sweep", pool=pool, error=str(error))

    def _reap(self, runner: Runner) -> Job:
        alive = runner.phase is not Phase.ENDED
        cause = Cause.ORPHAN if alive else Cause.ENDED
        why = "its pool is gone and it holds no job" if alive else "it ended and its pool is gone"
        return partial(self._applier.reap, ReapRunner(runner, cause, why), NO_POOL)


def _may_go(runner: Runner) -> bool:
    return runner.deleting_since is None and runner.phase is not Phase.BUSY
