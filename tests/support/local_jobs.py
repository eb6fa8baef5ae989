"""Local jobs under test: both implementations next to a store of jobs, and builders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from remuda.adapters.postgres.job_views import PostgresJobViews
from remuda.adapters.postgres.jobs import PostgresJobs
from remuda.adapters.postgres.local_files import PostgresLocalFiles
from remuda.adapters.postgres.local_jobs import PostgresLocalJobs
from remuda.model.job import Kind, Os, Size
from remuda.ports.jobs import JobEnd, NothingToDo, Running, WarmRunner
from remuda.ports.local_jobs import LocalEnd, LocalJob
from remuda.sim.jobs.local import MemoryLocalJobs
from remuda.sim.jobs.local_files import MemoryLocalFiles
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews
from tests.support.jobs import START, StillClock, a_job

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import Claimed, JobStore
    from remuda.ports.local_files import LocalFiles
    from remuda.ports.local_jobs import LocalJobs

LOG_MAX = 100
"""A small bound, so that a test can reach it."""
TOTAL_MAX = 1000
"""Likewise, of all archives together."""


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Local jobs, and the store of jobs that they are enqueued in."""

    local: LocalJobs
    files: LocalFiles
    jobs: JobStore
    views: JobViews
    clock: StillClock

    async def queue(self, job_id: str = "local-1") -> None:
        await self.jobs.set_limits("local", Os.LINUX, Size(64, 64 * 2048), by="test")
        await self.jobs.enqueue(
            a_job(1, id=job_id, tenant="local", repository="local/ann", kind=Kind.LOCAL), by="test"
        )

    async def claim(self, pod: str) -> Claimed | NothingToDo:
        return await self.jobs.claim(WarmRunner(pod, f"uid-{pod}", "linux"))

    async def run(self, pod: str) -> Running:
        """Claim and hand over, with the runner name ``r-<pod>``."""
        claimed = await self.claim(pod)
        assert not isinstance(claimed, NothingToDo), claimed
        answer = await self.jobs.mark_running(claimed.claim, f"r-{pod}")
        assert isinstance(answer, Running), answer
        return answer

    async def complete(self, job_id: str = "local-1", runner_name: str = "") -> None:
        await self.jobs.complete(
            JobEnd(
                job_id=job_id,
                tenant="local",
                conclusion="success",
                ended_at=self.clock.now(),
                by="test",
                runner_name=runner_name,
            )
        )


def a_local_job(job_id: str = "local-1", **changes: Any) -> LocalJob:  # noqa: ANN401 - fields of what it builds
    job = LocalJob(
        job_id=job_id,
        request="00ff",
        script="echo hello",
        env={"COLOUR": "blue"},
        timeout_s=600,
        submitted_by="ann",
        submitted_at=START,
    )
    return replace(job, **changes)


def an_end(conclusion: str = "success", **changes: Any) -> LocalEnd:  # noqa: ANN401 - fields of what it builds
    return replace(LocalEnd(conclusion=conclusion, at=START, exit_code=0), **changes)


def memory_local(log_max_bytes: int = LOG_MAX, clock: StillClock | None = None) -> LocalStore:
    clock = clock or StillClock()
    tables = Tables(clock)
    local = MemoryLocalJobs(tables, log_max_bytes=log_max_bytes)
    files = MemoryLocalFiles(local.peek, total_max_bytes=TOTAL_MAX)
    return LocalStore(local, files, MemoryJobs(tables), MemoryJobViews(tables), clock)


def postgres_local(database: Database, log_max_bytes: int = LOG_MAX) -> LocalStore:
    clock = StillClock()
    local = PostgresLocalJobs(database, log_max_bytes=log_max_bytes)
    return LocalStore(
        local,
        PostgresLocalFiles(database, total_max_bytes=TOTAL_MAX),
        PostgresJobs(database, clock),
        PostgresJobViews(database, clock),
        clock,
    )
