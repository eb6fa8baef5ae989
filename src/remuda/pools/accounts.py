"""
ServiceAccounts of runners that are gone: each goes right after its Pod, and never before.

A Pod that is being deleted is there until its agent has let it go, and until then the agent speaks to dispatch with
its token: without the ServiceAccount nobody would hear how its job ended and what it printed last. That the Pod is
gone takes two proofs: our view, which showed it, and the server's own word. What is missed here is found by a sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from remuda.control.queue import QueueSettings, WorkQueue
from remuda.kube.core import POD, SERVICE_ACCOUNT
from remuda.kube.names import POOL
from remuda.ports.kube import NotFound, Seen

if TYPE_CHECKING:
    from remuda.control.cache import Key
    from remuda.kube.core import ServiceAccount
    from remuda.pools.reins import Reins

log = structlog.get_logger(__name__)

LOOP: Final = "accounts"


class Accounts:
    """Woken by each Pod that goes. ``run`` it; a failure is tried again."""

    def __init__(self, reins: Reins) -> None:
        self._reins, self._view = reins, reins.view
        settings = QueueSettings(workers_max=reins.settings.workers_max)
        self._queue: WorkQueue[str] = WorkQueue(LOOP, self._look, reins.ids, settings)
        self._view.pods.on_change(self._pod_changed)

    async def run(self) -> None:
        """Remove ServiceAccounts until cancelled. The view must be synced."""
        assert self._view.synced, "what was never listed is not gone"
        await self._queue.run()

    def _pod_changed(self, key: Key) -> None:
        if self._view.pod(key.name) is None:
            self._queue.add(key.name)

    async def _look(self, name: str) -> None:
        account = self._view.service_account(name)
        if account is not None and self._view.pod(name) is None:
            await remove(self._reins, account)


async def remove(reins: Reins, account: ServiceAccount) -> None:
    """
    Remove a ServiceAccount, unless the server knows a Pod of its name or one is being made right now.

    Raises Conflict if somebody changed it since our view saw it: then it is to be looked at again, and not forgotten.
    """
    if _is_awaited(reins, account):
        return
    try:
        await reins.kube.get(POD, account.name, namespace=account.namespace)
    except NotFound:
        pass
    else:
        return  # our view is behind
    try:
        await reins.kube.delete(
            SERVICE_ACCOUNT,
            account.name,
            namespace=account.namespace,
            seen=Seen(uid=account.uid, resource_version=account.resource_version),
        )
    except NotFound:
        return
    log.info("service account removed", name=account.name, why="it has no Pod")


def _is_awaited(reins: Reins, account: ServiceAccount) -> bool:
    pool = account.labels.get(POOL, "")
    placeholders = reins.expectations.placeholders(pool)
    return any(placeholder.name == account.name for placeholder in placeholders)
