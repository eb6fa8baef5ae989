"""Reads of the store of jobs on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.adapters.postgres.job_rows import (
    audit_entry_of,
    completion_of,
    job_of,
    live_claim_of,
    session_of,
    standing_of,
)
from remuda.adapters.postgres.queries import query
from remuda.dispatch.decide.fairness import AGEING
from remuda.model.job import JobState
from remuda.ports.dispatch import Signals
from remuda.ports.job_views import CLAIMABLE_MAX, Queue, Turn, Waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime, timedelta

    from remuda.adapters.postgres.pool import Database
    from remuda.model.job import AuditEntry, Completion, Job, LiveClaim, Session, Standing
    from remuda.ports.clock import Clock
    from remuda.ports.job_views import JobFilter


class PostgresJobViews:
    """Implements ``remuda.ports.job_views.JobViews``."""

    def __init__(self, database: Database, clock: Clock, *, ageing: timedelta = AGEING) -> None:
        self._database = database
        self._clock = clock
        self._ageing = ageing

    async def job(self, job_id: str) -> Job | None:
        async with self._database.connection() as c:
            row = await c.fetchrow(query("job_by_id"), job_id)
        return None if row is None else job_of(row)

    async def jobs(
        self,
        *,
        states: Collection[JobState],
        queued_before: datetime | None = None,
        started_before: datetime | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 100,
    ) -> tuple[Job, ...]:
        place = after or (None, None)
        wanted = sorted(state.value for state in states)
        async with self._database.connection() as c:
            rows = await c.fetch(
                query("list_jobs"), wanted, queued_before, started_before, *place, limit
            )
        return tuple(job_of(row) for row in rows)

    async def newest(
        self, wanted: JobFilter, *, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> tuple[Job, ...]:
        states = sorted(state.value for state in wanted.states)
        where = (states, wanted.pool, wanted.tenant, wanted.repository)
        async with self._database.connection() as c:
            rows = await c.fetch(query("newest_jobs"), *where, *(before or (None, None)), limit)
        return tuple(job_of(row) for row in rows)

    async def claims(
        self, *, claimed_before: datetime | None = None, undelivered: bool = False
    ) -> tuple[LiveClaim, ...]:
        async with self._database.connection() as c:
            rows = await c.fetch(query("list_claims"), claimed_before, undelivered)
        return tuple(live_claim_of(row) for row in rows)

    async def claim_of(self, pod: str) -> LiveClaim | None:
        async with self._database.connection() as c:
            row = await c.fetchrow(query("claim_of_pod"), pod)
        return None if row is None else live_claim_of(row)

    async def sessions(
        self, *, open_only: bool = True, started_before: datetime | None = None, limit: int = 1000
    ) -> tuple[Session, ...]:
        async with self._database.connection() as c:
            rows = await c.fetch(query("list_sessions"), open_only, started_before, limit)
        return tuple(session_of(row) for row in rows)

    async def session_of(self, pod: str) -> Session | None:
        async with self._database.connection() as c:
            row = await c.fetchrow(query("session_of_pod"), pod)
        return None if row is None else session_of(row)

    async def occupied_pods(self) -> frozenset[str]:
        async with self._database.connection() as c:
            return frozenset(row["pod"] for row in await c.fetch(query("occupied_pods")))

    async def completions(self, job_ids: Collection[str]) -> Mapping[str, Completion]:
        async with self._database.connection() as c:
            rows = await c.fetch(query("completions_of"), sorted(job_ids))
        return {row["job_id"]: completion_of(row) for row in rows}

    async def standings(self, tenant: str | None = None) -> tuple[Standing, ...]:
        async with self._database.connection() as c:
            rows = await c.fetch(query("standings"), tenant)
        return tuple(standing_of(row) for row in rows)

    async def signals(self, pool: str) -> Signals:
        async with self._database.connection() as c:
            row = await c.fetchrow(query("signals"), pool, self._clock.now())
        assert row is not None
        return Signals(
            queued=row["queued"],
            claimed=row["claimed"],
            occupied=row["occupied"],
            withheld=row["withheld"],
            p95_concurrent_last_hour=row["p95"],
            oldest_queued_s=row["oldest_queued_s"],
        )

    async def claimable(self) -> Mapping[str, int]:
        async with self._database.connection() as c:
            rows = await c.fetch(query("claimable"), self._clock.now(), CLAIMABLE_MAX)
        return {row["pool"]: row["n"] for row in rows}

    async def queues(self) -> Mapping[str, Queue]:
        async with self._database.connection() as c:
            rows = await c.fetch(query("queues"))
        return {row["pool"]: Queue(row["n"], row["oldest"]) for row in rows}

    async def recent_repositories(self, *, since: datetime, limit: int) -> tuple[str, ...]:
        async with self._database.connection() as c:
            rows = await c.fetch(query("recent_repositories"), since, limit)
        return tuple(row["repository"] for row in rows)

    async def waiting(self, job_id: str) -> Waiting | None:
        async with self._database.transaction() as c:
            row = await c.fetchrow(query("job_by_id"), job_id)
            if row is None or row["state"] != JobState.QUEUED:
                return None
            spec = job_of(row).spec
            of_tenant = (spec.tenant, spec.os.value)
            standing = await c.fetchrow(query("standing"), *of_tenant)
            place = (spec.pool, spec.tenant, spec.queued_at, spec.id)
            now = self._clock.now()
            turns = await c.fetch(query("turns"), spec.pool, now, self._ageing)
            claims = await c.fetch(query("claims_of_tenant"), *of_tenant)
            return Waiting(
                job=job_of(row),
                standing=None if standing is None else standing_of(standing),
                ahead=await c.fetchval(query("jobs_ahead"), *place, now),
                turns=tuple(Turn(standing_of(turn), turn["oldest"]) for turn in turns),
                claims=tuple(live_claim_of(claim) for claim in claims),
            )

    async def audit(
        self, *, after: int = 0, job_id: str | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        async with self._database.connection() as c:
            if job_id is None:
                rows = await c.fetch(query("follow_decisions"), after, limit)
            else:
                rows = await c.fetch(query("decisions_of_job"), job_id, after, limit)
        return tuple(audit_entry_of(row) for row in rows)

    async def audit_end(self) -> int:
        async with self._database.connection() as c:
            return int(await c.fetchval(query("settled_decisions")))
