"""
The operator says that a runner stopped: its books are closed at once, and the forge is asked about its jobs.

A report is a hint that makes things quicker. One that never comes costs time: the workers find out by themselves. One
that is late must not end what a younger Pod of the same name does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.decide.recovery import Doubt, Evidence, Inquiries
from remuda.dispatch.workers.inquiry import Inquiry
from remuda.dispatch.workers.turning import AT_ONCE
from remuda.kube.core import POD
from remuda.kube.runner_view import runner_of
from remuda.model.errors import RemudaError
from remuda.model.runner import Phase
from remuda.ports.jobs import PodEnd
from remuda.ports.kube import KubeError, NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.kube.core import Pod

log = structlog.get_logger(__name__)

BY: Final = "operator"
NAME: Final = "stops"
_WAITING_MAX: Final = 1000
"""How many jobs may wait to be asked about. Beyond that the worker of orphaned runners asks, a little later."""


class Stops:
    """``stopped`` takes a report; ``run`` asks the forge in the background, on this replica, without a lock."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts
        self._waiting: deque[Doubt] = deque(maxlen=_WAITING_MAX)
        self._news = asyncio.Event()

    async def stopped(
        self, pod: str, *, ended_at: datetime, exit_code: int | None, reason: str
    ) -> None:
        """Close what stands on a Pod. Idempotent; a later report can only shorten."""
        now = self._parts.clock.now()
        uid = await self._which(pod)
        if uid is None:
            log.warning("report of a Pod that lives is not taken", pod=pod, reason=reason)
            return
        end = PodEnd(
            pod=pod,
            pod_uid=uid,
            ended_at=min(ended_at, now),
            by=BY,
            exit_code=exit_code,
            reason=reason,
        )
        stopped = await self._parts.store.stop_pod(end)
        for job in stopped.in_doubt:
            self._waiting.append(Doubt(job, Evidence.POD_ENDED))
        self._news.set()

    async def _which(self, name: str) -> str | None:
        """
        Say which Pod a report can be of: its UID, or empty if there is none of that name any more.

        None: a Pod of that name is up, or nobody can tell. Then the report is of an earlier one, or may be; what it
        would have closed is closed by a worker, a little later.
        """
        seen = self._parts.view.pod(name)
        if seen is not None and not _is_up(seen):
            return seen.uid
        try:
            pod = await self._parts.kube.get(POD, name, namespace=self._parts.settings.namespace)
        except NotFound:
            return seen.uid if seen is not None else ""
        except KubeError as error:
            log.info("Pod not read", pod=name, error=str(error))
            return None
        return None if _is_up(pod) else pod.uid

    async def run(self) -> None:
        """Ask about what is in doubt until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(self._ask(), name=f"{NAME} {number}")

    async def _ask(self) -> None:
        # A memory of its own: each is asked once here, and the worker of orphaned runners goes on from there.
        inquiry = Inquiry(self._parts, Inquiries(self._parts.settings.recovery), NAME)
        while True:
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                continue
            doubt = self._waiting.popleft()
            try:
                await inquiry.about(doubt)
            except RemudaError as error:
                self._parts.metrics.worker_failed(NAME)
                log.info("left to the next turn", job=doubt.job.spec.id, error=str(error))
            except Exception:  # the loop's edge: a fault of ours here must not end the process
                self._parts.metrics.worker_failed(NAME)
                log.exception("broke on one job", job=doubt.job.spec.id)


def _is_up(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and runner_of(pod).phase is not Phase.ENDED
