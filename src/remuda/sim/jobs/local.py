"""Jobs without a forge in memory. No method awaits between its first read and its last write, so each is atomic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remuda.model.job import JobState
from remuda.ports.local_jobs import LOG_MAX_BYTES, LogPart, cut_notice

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.ports.local_jobs import LocalEnd, LocalJob
    from remuda.sim.jobs.tables import Tables


@dataclass(slots=True)
class _Log:
    data: bytes = b""
    cut: bool = False


class MemoryLocalJobs:
    """Implements ``remuda.ports.local_jobs.LocalJobs``."""

    def __init__(self, tables: Tables, *, log_max_bytes: int = LOG_MAX_BYTES) -> None:
        self._tables = tables
        self._log_max_bytes = log_max_bytes
        self._jobs: dict[str, LocalJob] = {}
        self._logs: dict[str, _Log] = {}

    async def add(self, job: LocalJob) -> LocalJob:
        return self._jobs.setdefault(job.job_id, job)

    async def get(self, job_id: str) -> LocalJob | None:
        return self._jobs.get(job_id)

    def peek(self, job_id: str) -> LocalJob | None:
        """Return a job without waiting: for what is kept beside it."""
        return self._jobs.get(job_id)

    async def begun_by(self, pod_uid: str) -> str:
        return self._begun_by(pod_uid)

    def _begun_by(self, pod_uid: str) -> str:
        begun = (job.job_id for job in self._jobs.values() if job.begun_by == pod_uid)
        return next(begun, "") if pod_uid else ""

    async def begin(
        self, job_id: str, *, pod: str, pod_uid: str, at: datetime, tells_end: bool = False
    ) -> bool:
        job = self._jobs.get(job_id)
        if job is None or job.end is not None:
            return False
        if job.begun_by:
            if job.begun_by == pod_uid:
                told = job.tells_end or tells_end
                self._jobs[job_id] = replace(job, tells_end=told)
            return job.begun_by == pod_uid
        if job.cancelled_at is not None or self._begun_by(pod_uid):
            return False
        begun = replace(job, started_at=at, begun_by=pod_uid, pod=pod, tells_end=tells_end)
        self._jobs[job_id] = begun
        return True

    async def end(self, job_id: str, end: LocalEnd) -> LocalEnd | None:
        job = self._jobs.get(job_id)
        if job is None:
            return None
        if job.end is None:
            self._jobs[job_id] = replace(job, end=end, script="", env={}, needs=frozenset())
        return job.end or end

    async def told(self, job_id: str, *, files_note: str) -> None:
        job = self._jobs.get(job_id)
        if job is None or job.end is None or job.end.more_until is None:
            return
        note = job.end.files_note or files_note
        self._jobs[job_id] = replace(job, end=replace(job.end, more_until=None, files_note=note))

    async def cancel(self, job_id: str, at: datetime) -> bool:
        job = self._jobs.get(job_id)
        if job is None or job.end is not None:
            return False
        self._jobs[job_id] = replace(job, cancelled_at=job.cancelled_at or at)
        return True

    async def append_log(self, job_id: str, offset: int, data: bytes) -> int | None:
        if job_id not in self._jobs:
            return None
        log = self._logs.setdefault(job_id, _Log())
        kept = len(log.data)
        if log.cut:
            return offset + len(data)
        fresh = data[kept - offset :] if offset <= kept else b""
        if not fresh:
            return kept
        room = self._log_max_bytes - kept
        log.cut = len(fresh) > room
        log.data += fresh[:room] + cut_notice(self._log_max_bytes) if log.cut else fresh
        return offset + len(data)

    async def read_log(self, job_id: str, offset: int, *, limit: int) -> LogPart | None:
        job = self._jobs.get(job_id)
        if job is None:
            return None
        log = self._logs.get(job_id, _Log())
        data = log.data[offset : offset + limit]
        next_offset = offset + len(data)
        return LogPart(data, next_offset, job.end is not None and next_offset >= len(log.data))

    async def unsettled(self, *, submitted_before: datetime, limit: int) -> tuple[str, ...]:
        found = [job for job in self._jobs.values() if self._is_unsettled(job, submitted_before)]
        in_order = sorted(found, key=lambda job: (job.submitted_at, job.job_id))
        return tuple(job.job_id for job in in_order[:limit])

    def _is_unsettled(self, local: LocalJob, submitted_before: datetime) -> bool:
        job = self._tables.jobs.get(local.job_id)
        if local.end is not None:
            return job is not None and not job.state.over
        if local.job_id in self._tables.completions:
            return True
        if job is None:
            return local.submitted_at < submitted_before
        waits_in_vain = bool(local.begun_by) or local.cancelled_at is not None
        return job.state is JobState.QUEUED and waits_in_vain

    async def forget(self, *, ended_before: datetime, limit: int) -> int:
        ends = {job.job_id: job.end.at for job in self._jobs.values() if job.end is not None}
        old = sorted((at, job_id) for job_id, at in ends.items() if at < ended_before)[:limit]
        for _, job_id in old:
            del self._jobs[job_id]
            self._logs.pop(job_id, None)
        return len(old)
