"""
Jobs without a forge on PostgreSQL. ``remuda.sim.jobs.local`` is its twin in memory; one suite holds both to the same.

Nothing here decides how a job ended. Its script and environment leave the table with its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import msgspec

from remuda.adapters.postgres.queries import query
from remuda.ports.local_jobs import (
    LOG_MAX_BYTES,
    LocalEnd,
    LocalJob,
    LogPart,
    Upload,
    cut_notice,
)

if TYPE_CHECKING:
    from datetime import datetime

    from asyncpg import Record

    from remuda.adapters.postgres.pool import Database, Pooled

_ONE_RUNNER = "local_jobs_one_runner"


class PostgresLocalJobs:
    """Implements ``remuda.ports.local_jobs.LocalJobs``."""

    def __init__(self, database: Database, *, log_max_bytes: int = LOG_MAX_BYTES) -> None:
        self._database = database
        self._log_max_bytes = log_max_bytes

    async def add(self, job: LocalJob) -> LocalJob:
        env = msgspec.json.encode(dict(job.env)).decode()
        async with self._database.transaction() as c:
            await c.execute(
                query("add_local_job"),
                *(job.job_id, job.request, job.script, env, job.timeout_s),
                *(job.submitted_by, job.submitted_at, _files(job), sorted(job.needs)),
            )
            row = await c.fetchrow(query("local_job"), job.job_id)
        assert row is not None, "it was added or was there; nothing young is forgotten"
        return _job_of(row)

    async def get(self, job_id: str) -> LocalJob | None:
        async with self._database.connection() as c:
            row = await c.fetchrow(query("local_job"), job_id)
        return None if row is None else _job_of(row)

    async def begun_by(self, pod_uid: str) -> str:
        async with self._database.connection() as c:
            return str(await c.fetchval(query("local_job_of_pod"), pod_uid) or "")

    async def begin(
        self, job_id: str, *, pod: str, pod_uid: str, at: datetime, tells_end: bool = False
    ) -> bool:
        async with self._database.connection() as c:
            try:
                done = await c.fetchval(
                    query("begin_local_job"), job_id, pod_uid, pod, at, tells_end
                )
            except asyncpg.UniqueViolationError as error:
                if error.constraint_name != _ONE_RUNNER:
                    raise
                return False
        return done is not None

    async def end(self, job_id: str, end: LocalEnd) -> LocalEnd | None:
        note = end.files_note or None
        values = (end.at, end.conclusion, end.exit_code, end.reason, note, end.more_until)
        async with self._database.transaction() as c:
            await c.execute(query("end_local_job"), job_id, *values)
            row = await c.fetchrow(query("local_job"), job_id)
        return None if row is None else _job_of(row).end

    async def told(self, job_id: str, *, files_note: str) -> None:
        async with self._database.connection() as c:
            await c.execute(query("told_local_job"), job_id, files_note or None)

    async def cancel(self, job_id: str, at: datetime) -> bool:
        async with self._database.connection() as c:
            return await c.fetchval(query("cancel_local_job"), job_id, at) is not None

    async def append_log(self, job_id: str, offset: int, data: bytes) -> int | None:
        async with self._database.transaction() as c:
            row = await c.fetchrow(query("lock_local_log"), job_id)
            if row is None:
                return None
            kept: int = row["log_bytes"]
            if row["log_cut"]:
                return offset + len(data)
            fresh = data[kept - offset :] if offset <= kept else b""
            if not fresh:
                return kept
            await self._append(c, job_id, kept, fresh)
        return offset + len(data)

    async def _append(self, c: Pooled, job_id: str, kept: int, fresh: bytes) -> None:
        room = self._log_max_bytes - kept
        cut = len(fresh) > room
        piece = fresh[:room] + cut_notice(self._log_max_bytes) if cut else fresh
        await c.execute(query("append_local_log"), job_id, kept, piece)
        await c.execute(query("grow_local_log"), job_id, kept + len(piece), cut)

    async def read_log(self, job_id: str, offset: int, *, limit: int) -> LogPart | None:
        async with self._database.connection() as c:
            # The end is looked at first: what is appended in between is read and not called complete.
            seen = await c.fetchrow(query("see_local_log"), job_id)
            if seen is None:
                return None
            stop = min(offset + limit, seen["log_bytes"])
            rows = await c.fetch(query("read_local_log"), job_id, offset, stop)
        begins = rows[0]["begins"] if rows else offset
        text = b"".join(row["data"] for row in rows)
        data = text[offset - begins : stop - begins] if offset < stop else b""
        next_offset = offset + len(data)
        return LogPart(data, next_offset, seen["over"] and next_offset >= seen["log_bytes"])

    async def unsettled(self, *, submitted_before: datetime, limit: int) -> tuple[str, ...]:
        async with self._database.connection() as c:
            rows = await c.fetch(query("unsettled_local_jobs"), submitted_before, limit)
        return tuple(row["job_id"] for row in rows)

    async def forget(self, *, ended_before: datetime, limit: int) -> int:
        async with self._database.connection() as c:
            done = await c.execute(query("forget_local_jobs"), ended_before, limit)
        return int(done.rsplit(" ", 1)[1])


class _Files(msgspec.Struct, frozen=True):
    """The files of a job, as the table has them."""

    upload: Upload | None = None
    download: tuple[str, ...] = ()


def _files(job: LocalJob) -> str | None:
    if job.upload is None and not job.download:
        return None
    return msgspec.json.encode(_Files(job.upload, job.download)).decode()


def _job_of(row: Record) -> LocalJob:
    files = msgspec.json.decode(row["files"], type=_Files) if row["files"] else _Files()
    env = msgspec.json.decode(row["env"], type=dict[str, str]) if row["env"] else {}
    end = None
    if row["ended_at"] is not None:
        end = LocalEnd(
            conclusion=row["conclusion"],
            at=row["ended_at"],
            exit_code=row["exit_code"],
            reason=row["reason"] or "",
            files_note=row["files_note"] or "",
            more_until=row["more_until"],
        )
    return LocalJob(
        job_id=row["job_id"],
        request=row["request"],
        script=row["script"] or "",
        env=env,
        timeout_s=row["timeout_s"],
        upload=files.upload,
        download=files.download,
        needs=frozenset(row["needs"]),
        submitted_by=row["submitted_by"],
        submitted_at=row["submitted_at"],
        started_at=row["started_at"],
        begun_by=row["begun_by"] or "",
        pod=row["pod"] or "",
        tells_end=row["tells_end"],
        cancelled_at=row["cancelled_at"],
        end=end,
    )
