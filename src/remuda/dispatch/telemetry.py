"""
What a runner's Pod says about its own job: that it begins, what it prints, how it ends.

A Pod speaks for the job that it was handed and for no other. Everything may be said twice, and in any order with the
operator's word that the Pod stopped: the first end counts. Of a forge's jobs nothing is kept: the forge has its own
logs, and the memory of one replica would answer nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from remuda.dispatch.decide.local_jobs import deadline_of, exit_of, is_overdue, stop_reason, within
from remuda.dispatch.local import TENANT, is_local
from remuda.ports.jobs import Attribution, Execution
from remuda.ports.local_files import Way

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.dispatch.local import LocalForge
    from remuda.dispatch.who import RunnerIdentity
    from remuda.ports.clock import Clock
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import JobStore
    from remuda.ports.local_files import LocalFiles
    from remuda.ports.local_jobs import LocalJob, LocalJobs

_NO_JOB = "this Pod holds no job"
_NOT_YOURS = "another Pod began the job"
_NO_FILES = "its files were not fetched: the agent must be of this version or newer"


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Some of what a job printed."""

    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a job's script ended."""

    code: int
    reason: str = ""
    reported: bool = True
    """Whether the code is the script's own. Else it is its runner's, which ended with the script or without."""
    files_note: str = ""
    """Why files that were to come back did not."""
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a Pod says at once. It is bounded: the API has seen to that."""

    started_at: datetime | None = None
    """It asks to begin. The script must not run before the answer is there and says nothing of stopping."""
    tells_end: bool = False
    """With that: whether it will tell the job's output and its end, too."""
    log: LogPiece | None = None
    exit: Exit | None = None

    @property
    def is_empty(self) -> bool:
        return self.started_at is None and self.log is None and self.exit is None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the Pod is told."""

    stop: str = ""
    """Why its job must stop, or must not begin."""
    log_offset: int | None = None
    """There is a gap: nothing from the log on was taken. Send it again from here."""
    overdue: bool = False
    """It must stop because its time is over, and for no other reason."""


@dataclass(frozen=True, slots=True)
class _Held:
    """The job of a Pod."""

    job_id: str
    runner_name: str
    claimed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Takes reports of Pods."""

    forge: LocalForge
    local: LocalJobs
    files: LocalFiles
    store: JobStore
    views: JobViews
    clock: Clock

    async def take(self, who: RunnerIdentity, report: Report) -> Reply:
        """Apply what a Pod says about its job, in the order begin, log, exit."""
        if report.is_empty:
            return Reply()
        held = await self._held(who)
        if held is None:
            return Reply(stop=_NO_JOB)
        if not is_local(held.job_id):
            return Reply()
        job = await self.local.get(held.job_id)
        if job is None:
            return Reply(stop=_NO_JOB)
        if job.begun_by not in {"", who.pod_uid}:
            return Reply(stop=_NOT_YOURS)
        return await self._apply(who, held, job, report)

    async def job_of(self, who: RunnerIdentity) -> LocalJob | None:
        """Return the local job that was handed to a Pod, and to no other since."""
        held = await self._held(who)
        if held is None or not is_local(held.job_id):
            return None
        job = await self.local.get(held.job_id)
        return job if job is not None and job.begun_by in {"", who.pod_uid} else None

    async def _apply(
        self, who: RunnerIdentity, held: _Held, job: LocalJob, report: Report
    ) -> Reply:
        deadline = deadline_of(job, held.claimed_at)
        if (
            not job.begun_by
        ):  # also for one that forgot to ask: only whose claim stands may speak for a job
            refused = await self._begin(who, held, job, report)
            if refused:
                return Reply(stop=refused)
        if report.log is not None:
            offset, data = report.log.offset, report.log.data
            kept = await self.local.append_log(job.job_id, offset, data)
            if kept is not None and kept < offset:
                return replace(self._stop(job, deadline), log_offset=kept)
        if report.exit is not None:
            await self._exit(job, report.exit, deadline)
            return Reply()
        return self._stop(job, deadline)

    def _stop(self, job: LocalJob, deadline: datetime | None) -> Reply:
        now = self.clock.now()
        overdue = is_overdue(job, deadline, now)
        return Reply(stop=stop_reason(job, deadline, now), overdue=overdue)

    async def _begin(self, who: RunnerIdentity, held: _Held, job: LocalJob, report: Report) -> str:
        """
        Let a Pod begin; return why not.

        The claim hears of it first: from then on it counts as executing, so no failed hand-over takes it back while
        the beginning is written down.
        """
        now = self.clock.now()
        at = within(report.started_at, held.claimed_at, now)
        if job.upload is not None:
            file = await self.files.of_job(job.job_id, Way.IN)
            if file is None or file.fetched_by != who.pod_uid:
                return _NO_FILES
        execution = Execution(
            tenant=TENANT,
            job_id=job.job_id,
            runner_name=held.runner_name,
            started_at=at,
            by=who.pod,
        )
        if await self.store.attribute(execution) is not Attribution.MATCHED:
            return stop_reason(job, None, now) or _NO_JOB
        if await self.local.begin(
            job.job_id, pod=who.pod, pod_uid=who.pod_uid, at=at, tells_end=report.tells_end
        ):
            return ""
        fresh = await self.local.get(job.job_id)
        return (fresh and stop_reason(fresh, None, now)) or _NOT_YOURS

    async def _exit(self, job: LocalJob, said: Exit, deadline: datetime | None) -> None:
        """End the job, once. A cancellation that came with it is seen: what we read may be older than it."""
        fresh = await self.local.get(job.job_id) or job
        at = within(said.finished_at, fresh.started_at or fresh.submitted_at, self.clock.now())
        end = exit_of(fresh, said.code, said.reason, at=at, deadline=deadline)
        if not said.reported:
            end = replace(end, exit_code=None)
        end = replace(end, files_note=said.files_note)
        counts = await self.forge.conclude(fresh, end)
        if counts.more_until is not None:  # its Pod's end came first, and could not say all
            await self.local.told(fresh.job_id, files_note=said.files_note)

    async def _held(self, who: RunnerIdentity) -> _Held | None:
        """Return the job that was handed to a Pod: by its claim, its session, or what it began."""
        live = await self.views.claim_of(who.pod)
        if live is not None and live.claim.pod_uid == who.pod_uid:
            if live.delivered_at is None:
                return None
            return _Held(live.claim.job_id, live.runner_name, live.claim.claimed_at)
        session = await self.views.session_of(who.pod)
        if session is not None and session.pod_uid == who.pod_uid:
            job_id = session.executed_job_id or session.job_id
            return _Held(job_id, session.runner_name, session.started_at)
        begun = await self.local.begun_by(who.pod_uid)
        return _Held(begun, "", None) if begun else None
