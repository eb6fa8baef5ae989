"""Local jobs under test: both implementations next to a store of jobs, and a builder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from remuda.adapters.postgres.local_jobs import PostgresLocalJobs
from remuda.ports.local_jobs import LocalEnd, LocalJob
from remuda.sim.jobs.deliveries import MemoryDeliveries
from remuda.sim.jobs.local import MemoryLocalJobs
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews
from tests.support.jobs import START, StillClock, Store, postgres_store

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database
    from remuda.ports.local_jobs import LocalJobs

LOG_MAX = 100
"""A small bound, so that a test can reach it."""


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Local jobs, and the store of jobs that they are enqueued in."""

    local: LocalJobs
    store: Store


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


def memory_local(log_max_bytes: int = LOG_MAX) -> LocalStore:
    clock = StillClock()
    tables = Tables(clock)
    store = Store(MemoryJobs(tables), MemoryJobViews(tables), MemoryDeliveries(clock), clock)
    return LocalStore(MemoryLocalJobs(tables, log_max_bytes=log_max_bytes), store)


def postgres_local(database: Database, log_max_bytes: int = LOG_MAX) -> LocalStore:
    local = PostgresLocalJobs(database, log_max_bytes=log_max_bytes)
    return LocalStore(local, postgres_store(database))
