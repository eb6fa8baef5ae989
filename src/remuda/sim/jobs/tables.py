"""What the store in memory holds, and the steps that its calls share. No step awaits, so each call is atomic."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from remuda.model.job import AuditEntry, Job, JobState, Size

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from remuda.model.job import Claim, Completion, LiveClaim, Os, Session, Standing
    from remuda.ports.api_tokens import ApiToken
    from remuda.ports.clock import Clock
    from remuda.ports.registrations import Registration

_Row = TypeVar("_Row")


@dataclass(slots=True)
class Tables:
    """The tables of dispatch. Claims are kept by Pod, sessions by Pod UID, limits by tenant and OS."""

    clock: Clock
    listeners: list[Callable[[str], None]] = field(default_factory=list)
    """Told the pool when a job may have become claimable, as NOTIFY does."""
    jobs: dict[str, Job] = field(default_factory=dict)
    claims: dict[str, LiveClaim] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    completions: dict[str, Completion] = field(default_factory=dict)
    limits: dict[tuple[str, Os], Standing] = field(default_factory=dict)
    decisions: list[AuditEntry] = field(default_factory=list)
    numbered: int = 0
    """The greatest number of a decision so far: old ones go."""
    registrations: dict[str, Registration] = field(default_factory=dict)
    tokens: dict[bytes, ApiToken] = field(default_factory=dict)
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    def woken(self, pool: str) -> None:
        for listener in tuple(self.listeners):
            listener(pool)

    def waiting(self, pool: str | None = None) -> list[Job]:
        """Return what is queued, by place."""
        found = [
            job
            for job in self.jobs.values()
            if job.state is JobState.QUEUED and pool in {None, job.spec.pool}
        ]
        return sorted(found, key=lambda job: (job.spec.queued_at, job.spec.id))

    def claim_of_runner(self, tenant: str, runner_name: str) -> LiveClaim | None:
        found = (
            live
            for live in self.claims.values()
            if live.tenant == tenant and runner_name and live.runner_name == runner_name
        )
        return next(found, None)

    def claim_on_job(self, job_id: str) -> LiveClaim | None:
        return next((c for c in self.claims.values() if c.claim.job_id == job_id), None)

    def take_room(self, key: tuple[str, Os], size: Size, at: datetime) -> None:
        standing = self.limits[key]
        used = standing.used.plus(size)
        assert used.fits(standing.limit), "a tenant never gets more than its limit"
        self.limits[key] = replace(standing, used=used, last_claimed_at=at)

    def end_claim(self, claim: Claim) -> None:
        """End a claim; its room goes back with it, and its tenant's queues hear of it."""
        live = self.claims.pop(claim.pod)
        key = (live.tenant, live.os)
        used = self.limits[key].used.minus(live.size)
        assert Size(0, 0).fits(used), "room is given back once"
        self.limits[key] = replace(self.limits[key], used=used)
        self.wake_tenant(*key)

    def wake_tenant(self, tenant: str, os: Os) -> None:
        waiting = (job.spec for job in self.waiting())
        for pool in sorted({s.pool for s in waiting if (s.tenant, s.os) == (tenant, os)}):
            self.woken(pool)

    def write(self, job: Job) -> Job:
        """Write a job's row. One that is over never changes."""
        before = self.jobs.get(job.spec.id)
        assert before is None or not before.state.over, "a job that is over never changes"
        self.jobs[job.spec.id] = job
        if job.state is JobState.QUEUED:
            assert job.spec.id not in self.completions, "a job that is over does not come back"
            self.woken(job.spec.pool)
        return job

    def run(self, job: Job, claim: Claim, runner_name: str, started_at: datetime) -> Job:
        return self.write(
            replace(
                job,
                state=JobState.RUNNING,
                claim=replace(claim, job_id=job.spec.id),
                runner_name=runner_name,
                started_at=started_at,
                hold_until=None,
            )
        )

    def requeue(self, job: Job | None, claim: Claim, hold_until: datetime | None = None) -> bool:
        """Put a job back into its old place if it is still bound to this claim."""
        if job is None or job.state not in {JobState.CLAIMED, JobState.RUNNING}:
            return False
        if job.claim is None or job.claim.claimed_at != claim.claimed_at:
            return False
        self.write(Job(spec=job.spec, attempts=job.attempts, hold_until=hold_until))
        return True

    def audit(  # noqa: PLR0913 - one row: its columns
        self,
        who: str,
        what: str,
        why: str,
        *,
        job_id: str = "",
        pod: str = "",
        tenant: str = "",
        pool: str = "",
    ) -> None:
        self.numbered += 1
        self.decisions.append(
            AuditEntry(
                number=self.numbered,
                at=self.clock.now(),
                who=who,
                what=what,
                why=why,
                job_id=job_id,
                pod=pod,
                tenant=tenant,
                pool=pool,
            )
        )


def drop_oldest(
    rows: dict[str, _Row], ended: Mapping[str, datetime | None], before: datetime, limit: int
) -> int:
    """Delete rows that ended before then, the oldest first, no more than ``limit``."""
    old = sorted((at, key) for key, at in ended.items() if at is not None and at < before)
    for _, key in old[:limit]:
        del rows[key]
    return len(old[:limit])
