"""
Ask the forge about a job in doubt, and do what its answer says.

What is changed carries the handle that was seen before the forge was asked. A job that was handed out anew meanwhile
has another one, so an answer about its past changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import structlog

from remuda.dispatch.decide.recovery import (
    Attribute,
    EndJob,
    Evidence,
    Leave,
    Requeue,
    verdict,
)
from remuda.model.job import JobState
from remuda.ports.forge import ForgeError, ForgeThrottled
from remuda.ports.jobs import Attribution, Execution, JobEnd, Release, Released

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from remuda.dispatch.decide.recovery import Doubt, Inquiries, Verdict
    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.ports.forge import ForgeJob, ForgeState

log = structlog.get_logger(__name__)

BY = "recovery"


@dataclass(frozen=True, slots=True)
class Told:
    """What came of it. ``said`` is None if the forge did not say."""

    said: ForgeState | None
    decided: Verdict | None = None


class Inquiry:
    """Asks for one worker. A tenant whose forge is throttled is left alone for as long as the forge wants."""

    def __init__(self, parts: RecoveryParts, memory: Inquiries, worker: str) -> None:
        self._parts, self._memory, self._worker = parts, memory, worker
        self._quiet_until: dict[str, float] = {}

    async def about(
        self, doubt: Doubt, may_requeue: Callable[[Doubt], Awaitable[bool]] | None = None
    ) -> Told:
        """Ask and act. ``may_requeue`` is asked when nobody seems to execute the job, before it is put back."""
        now = self._parts.clock.monotonic()
        said: ForgeJob | None = None
        try:
            said = await self._ask(doubt)
        finally:  # also if it broke: else it would be asked about without a pause
            self._memory.answered(doubt, said.state if said else None, now)
        if said is None:
            return Told(None)
        gone_s = self._parts.settings.recovery.gone_s
        gone_for_s = self._memory.gone_for(doubt, now)
        decided = verdict(doubt, said, gone_for_s=gone_for_s, gone_s=gone_s)
        if (
            may_requeue is not None
            and isinstance(decided, Requeue)
            and not await may_requeue(doubt)
        ):
            decided = Leave("its runner executes a job, the forge says")
        await self._carry_out(doubt, decided)
        return Told(said.state, decided)

    async def _ask(self, doubt: Doubt) -> ForgeJob | None:
        spec, now = doubt.job.spec, self._parts.clock.monotonic()
        forge = self._parts.forges.get(spec.kind)
        if forge is None or self._quiet_until.get(spec.tenant, now) > now:
            return None
        try:
            return await forge.look_up(spec)
        except ForgeThrottled as error:
            self._quiet_until[spec.tenant] = now + error.retry_after_s
            self._say_unanswered(doubt, error)
        except ForgeError as error:
            self._say_unanswered(doubt, error)
        return None

    def _say_unanswered(self, doubt: Doubt, error: ForgeError) -> None:
        self._parts.metrics.worker_failed(self._worker)
        log.info("the forge did not say", job=doubt.job.spec.id, error=str(error))

    async def _carry_out(self, doubt: Doubt, decided: Verdict) -> None:
        match decided:
            case Requeue():
                await self._requeue(doubt, decided)
            case EndJob():
                await self._end(doubt, decided)
            case Attribute():
                await self._attribute(doubt, decided)
            case Leave(why):
                log.debug("job left alone", job=doubt.job.spec.id, why=why)
            case _:
                assert_never(decided)

    async def _requeue(self, doubt: Doubt, decided: Requeue) -> None:
        job, parts = doubt.job, self._parts
        assert job.claim is not None, "only what was handed over comes back"
        release = Release(by=BY, why=decided.why, runner_name=job.runner_name)
        released = await parts.store.release(job.claim, release)
        if not isinstance(released, Released) or not released.requeued:
            return
        parts.metrics.recovered("orphan_requeued")
        if job.started_at is not None:
            parts.metrics.stranded((parts.clock.now() - job.started_at).total_seconds())
        log.warning("job queued again", job=job.spec.id, pod=job.claim.pod, why=decided.why)

    async def _end(self, doubt: Doubt, decided: EndJob) -> None:
        job, parts = doubt.job, self._parts
        end = JobEnd(
            job_id=job.spec.id,
            tenant=job.spec.tenant,
            conclusion=decided.conclusion,
            ended_at=self._past(decided.ended_at),
            by=BY,
            why=decided.why,
            runner_name=decided.runner_name,
            started_at=decided.started_at,
        )
        done = await parts.store.complete(end)
        if decided.release and job.claim is not None:
            await parts.store.release(job.claim, Release(by=BY, why=decided.why))
        # A name proves nothing by itself: another tenant may have given its own runner the same.
        if done.freed or job.runner_name == decided.runner_name != "":
            await parts.registrations.settle((decided.runner_name,))
        if done.news:
            queued = job.state is JobState.QUEUED
            parts.metrics.recovered("queued_completed" if queued else "orphan_completed")
            log.warning("job ended", job=job.spec.id, why=decided.why)

    async def _attribute(self, doubt: Doubt, decided: Attribute) -> None:
        if doubt.evidence is Evidence.PROVEN:
            return
        job, parts = doubt.job, self._parts
        found = await parts.store.attribute(
            Execution(
                tenant=job.spec.tenant,
                job_id=job.spec.id,
                runner_name=decided.runner_name,
                started_at=self._past(decided.started_at),
                by=BY,
            )
        )
        if found not in {Attribution.OVER, Attribution.UNKNOWN_RUNNER}:
            # It was used: the forge removes it by itself.
            await parts.registrations.settle((decided.runner_name,))
        log.info("job runs", job=job.spec.id, runner=decided.runner_name, found=found.value)

    def _past(self, at: datetime | None) -> datetime:
        """Return when something happened: the forge's clock may be ahead of ours."""
        now = self._parts.clock.now()
        return now if at is None else min(now, at)
