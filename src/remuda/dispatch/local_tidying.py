"""
Make the two places agree that know of a local job, after a crash between both; and forget what ended long ago.

It ends what can never go on and starts nothing. Each step may be repeated, by any replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from remuda.control.backoff import spread
from remuda.dispatch.decide.local_jobs import CANCELLED
from remuda.model.errors import RemudaError
from remuda.ports.local_files import Forgotten
from remuda.ports.local_jobs import LocalEnd

if TYPE_CHECKING:
    from remuda.dispatch.local import LocalForge
    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.dispatch.settings import FileSettings, RecoverySettings
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.job_views import JobViews
    from remuda.ports.local_files import LocalFiles
    from remuda.ports.local_jobs import LocalJob, LocalJobs

WORKER: Final = "local_jobs"
UNQUEUED_AFTER: Final = timedelta(minutes=10)
"""How long a job may be written down without being enqueued: longer than anybody repeats a request."""
_FORGOTTEN_AT_ONCE: Final = 50

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTidying:
    """A worker. Run it under the lock of its name."""

    forge: LocalForge
    local: LocalJobs
    files: LocalFiles
    views: JobViews
    settings: RecoverySettings
    file_settings: FileSettings
    metrics: DispatchMetrics
    clock: Clock
    ids: Ids

    async def run(self) -> None:
        while True:
            try:
                await self.tick()
            except RemudaError as error:
                self.metrics.worker_failed(WORKER)
                log.warning("local jobs not tidied", error=str(error))
            await self.clock.sleep(spread(self.settings.tick_s, self.ids.fraction()))

    async def tick(self) -> None:
        """Look once."""
        before = self.clock.now() - UNQUEUED_AFTER
        unsettled = await self.local.unsettled(
            submitted_before=before, limit=self.settings.actions_max
        )
        for job_id in unsettled:
            await self._settle_alone(job_id)
        old = self.clock.now() - self.settings.keep_over
        await self.local.forget(ended_before=old, limit=_FORGOTTEN_AT_ONCE)
        now, kept = self.clock.now(), self.file_settings
        old_files = Forgotten(
            untaken=now - kept.untaken, ended=now - kept.kept, fetched=now - kept.fetched
        )
        await self.files.forget(old_files, limit=_FORGOTTEN_AT_ONCE)

    async def _settle(self, job_id: str) -> None:
        job = await self.local.get(job_id)
        if job is None:
            return
        if await self._end(job):
            log.info("local job settled", job=job_id)

    async def _settle_alone(self, job_id: str) -> None:
        """Settle a job. One that fails is left for the next turn and stops no other, nor the server."""
        try:
            await self._settle(job_id)
        except RemudaError as error:
            log.warning("local job left for the next turn", job=job_id, error=str(error))
        except Exception:
            log.exception("local job broke its worker", job=job_id)
        else:
            return
        self.metrics.worker_failed(WORKER)

    async def _end(self, job: LocalJob) -> bool:
        over = (await self.views.completions([job.job_id])).get(job.job_id)
        if over is not None:
            end = LocalEnd(conclusion=over.conclusion, at=over.ended_at, reason="as dispatch says")
            await self.local.end(job.job_id, end)
            return True
        if job.end is None and await self.views.job(job.job_id) is None:
            why = "it was never enqueued: the server stopped at that moment"
            end = LocalEnd(conclusion=CANCELLED, at=self.clock.now(), reason=why)
            await self.forge.conclude(job, end)
            return True
        return isinstance(await self.forge.settle(job), LocalEnd)
