"""Reads of the store of jobs in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.dispatch.decide.fairness import AGEING
from remuda.dispatch.decide.signals import can_start, p95_concurrent
from remuda.model.job import JobState
from remuda.ports.dispatch import Signals
from remuda.ports.job_views import CLAIMABLE_MAX, Queue, Waiting
from remuda.sim.jobs.turns import may_go, turns

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime, timedelta

    from remuda.model.job import AuditEntry, Completion, Job, LiveClaim, Session, Standing
    from remuda.ports.job_views import JobFilter
    from remuda.sim.jobs.tables import Tables


class MemoryJobViews:
    """Implements ``remuda.ports.job_views.JobViews``."""

    def __init__(self, tables: Tables, *, ageing: timedelta = AGEING) -> None:
        self._tables = tables
        self._ageing = ageing

    async def job(self, job_id: str) -> Job | None:
        return self._tables.jobs.get(job_id)

    async def jobs(
        self,
        *,
        states: Collection[JobState],
        queued_before: datetime | None = None,
        started_before: datetime | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 100,
    ) -> tuple[Job, ...]:
        found = [
            job
            for job in self._tables.jobs.values()
            if job.state in states
            and (queued_before is None or job.spec.queued_at < queued_before)
            and (started_before is None or _before(job.started_at, started_before))
            and (after is None or _place(job) > after)
        ]
        return tuple(sorted(found, key=_place)[:limit])

    async def newest(
        self, wanted: JobFilter, *, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> tuple[Job, ...]:
        found = [
            job
            for job in self._tables.jobs.values()
            if (not wanted.states or job.state in wanted.states)
            and wanted.pool in {None, job.spec.pool}
            and wanted.tenant in {None, job.spec.tenant}
            and wanted.repository in {None, job.spec.repository}
            and (before is None or _place(job) < before)
        ]
        return tuple(sorted(found, key=_place, reverse=True)[:limit])

    async def claims(
        self, *, claimed_before: datetime | None = None, undelivered: bool = False
    ) -> tuple[LiveClaim, ...]:
        found = [
            live
            for live in self._tables.claims.values()
            if (claimed_before is None or live.claim.claimed_at < claimed_before)
            and not (undelivered and live.delivered_at is not None)
        ]
        return _oldest_first(found)

    async def claim_of(self, pod: str) -> LiveClaim | None:
        return self._tables.claims.get(pod)

    async def sessions(
        self, *, open_only: bool = True, started_before: datetime | None = None, limit: int = 1000
    ) -> tuple[Session, ...]:
        found = [
            session
            for session in self._tables.sessions.values()
            if not (open_only and session.ended_at is not None)
            and (started_before is None or session.started_at < started_before)
        ]
        return tuple(sorted(found, key=lambda s: (s.started_at, s.pod_uid))[:limit])

    async def session_of(self, pod: str) -> Session | None:
        of_pod = [s for s in self._tables.sessions.values() if s.pod == pod]
        return max(of_pod, key=lambda s: (s.started_at, s.pod_uid), default=None)

    async def occupied_pods(self) -> frozenset[str]:
        return self._occupied(None)

    def _occupied(self, pool: str | None) -> frozenset[str]:
        sessions = self._tables.sessions.values()
        still_open = {s.pod for s in sessions if s.ended_at is None and pool in {None, s.pool}}
        claims = self._tables.claims.values()
        return frozenset(still_open | {c.claim.pod for c in claims if pool in {None, c.pool}})

    async def completions(self, job_ids: Collection[str]) -> Mapping[str, Completion]:
        known = self._tables.completions
        return {job_id: known[job_id] for job_id in sorted(job_ids) if job_id in known}

    async def standings(self, tenant: str | None = None) -> tuple[Standing, ...]:
        found = [s for s in self._tables.limits.values() if tenant in {None, s.tenant}]
        return tuple(sorted(found, key=lambda s: (s.tenant, s.os)))

    async def signals(self, pool: str) -> Signals:
        tables, now = self._tables, self._tables.clock.now()
        free = [j for j in tables.waiting() if j.hold_until is None or j.hold_until <= now]
        rooms = {key: standing.room for key, standing in tables.limits.items()}
        start = can_start((job.spec for job in free), rooms)
        ours = [job for job in free if job.spec.pool == pool]
        queued = sum(job.spec.id in start for job in ours)
        oldest = min((job.spec.queued_at for job in tables.waiting(pool)), default=now)
        sessions = [s for s in tables.sessions.values() if s.pool == pool]
        return Signals(
            queued=queued,
            withheld=len(ours) - queued,
            claimed=sum(live.pool == pool for live in tables.claims.values()),
            occupied=len(self._occupied(pool)),
            p95_concurrent_last_hour=p95_concurrent(sessions, now),
            oldest_queued_s=max((now - oldest).total_seconds(), 0.0),
        )

    async def claimable(self) -> Mapping[str, int]:
        tables, now = self._tables, self._tables.clock.now()
        rooms = {key: standing.room for key, standing in tables.limits.items()}
        pools = sorted({job.spec.pool for job in tables.waiting()})
        counts = {
            pool: len(can_start((job.spec for job in may_go(tables, pool, now)), rooms))
            for pool in pools
        }
        return {pool: min(count, CLAIMABLE_MAX) for pool, count in counts.items() if count}

    async def queues(self) -> Mapping[str, Queue]:
        found: dict[str, Queue] = {}
        for job in self._tables.waiting():
            before = found.get(job.spec.pool, Queue(0, job.spec.queued_at))
            found[job.spec.pool] = Queue(before.count + 1, before.oldest)
        return dict(sorted(found.items()))

    async def recent_repositories(self, *, since: datetime, limit: int) -> tuple[str, ...]:
        newest: dict[str, datetime] = {}
        for job in sorted(self._tables.jobs.values(), key=_place):
            if job.spec.queued_at >= since:
                newest[job.spec.repository] = job.spec.queued_at
        in_order = sorted(newest, key=lambda name: (-newest[name].timestamp(), name))
        return tuple(in_order[:limit])

    async def waiting(self, job_id: str) -> Waiting | None:
        tables, job = self._tables, self._tables.jobs.get(job_id)
        if job is None or job.state is not JobState.QUEUED:
            return None
        spec, now = job.spec, tables.clock.now()
        free = may_go(tables, spec.pool, now)
        before = [j for j in free if j.spec.tenant == spec.tenant]
        held = [c for c in tables.claims.values() if (c.tenant, c.os) == (spec.tenant, spec.os)]
        return Waiting(
            job=job,
            standing=tables.limits.get((spec.tenant, spec.os)),
            ahead=sum(_place(j) < _place(job) for j in before),
            turns=turns(tables, free, now, self._ageing),
            claims=_oldest_first(held),
        )

    async def audit(
        self, *, after: int = 0, job_id: str | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        entries = (e for e in self._tables.decisions if e.number > after)
        return tuple([e for e in entries if job_id in {None, e.job_id}][:limit])

    async def audit_end(self) -> int:
        return self._tables.decisions[-1].number if self._tables.decisions else 0


def _place(job: Job) -> tuple[datetime, str]:
    return (job.spec.queued_at, job.spec.id)


def _before(moment: datetime | None, limit: datetime) -> bool:
    return moment is not None and moment < limit


def _oldest_first(claims: list[LiveClaim]) -> tuple[LiveClaim, ...]:
    return tuple(sorted(claims, key=lambda live: (live.claim.claimed_at, live.claim.pod)))
