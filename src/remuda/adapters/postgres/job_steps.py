"""
The steps of one transaction of the store of jobs: what is locked, moved and written down together.

Nothing here opens a transaction. Locks are taken in one order everywhere: the job's advisory lock, rows of ``jobs`` by
id, rows of ``claims`` by Pod, rows of ``limits``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.adapters.postgres.job_rows import job_of, live_claim_of
from remuda.adapters.postgres.queries import query
from remuda.ports.database import DatabaseConflict
from remuda.ports.jobs import Attribution

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.adapters.postgres.pool import Pooled
    from remuda.model.job import Claim, Job, LiveClaim
    from remuda.ports.jobs import Execution

_PARKED = "~"
"""The job of a claim while two claims change theirs. No job has this id: ids begin with a host."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a Pod holds, locked: its claim, and the job of the claim if that is known here."""

    claim: LiveClaim | None
    jobs: dict[str, Job]

    def job(self, job_id: str) -> Job | None:
        return self.jobs.get(job_id)


@dataclass(frozen=True, slots=True)
class Attributed:
    """What became of an execution."""

    result: Attribution
    claim: LiveClaim | None = None
    """The claim of the runner, as it is now."""
    requeued: str = ""
    """The job that the runner was claimed for, if it waits again."""


class JobSteps:
    """Steps on one connection that is inside a transaction."""

    def __init__(self, connection: Pooled, now: datetime) -> None:
        self._c = connection
        self._now = now

    async def lock_job(self, job_id: str) -> None:
        """Let messages about one job come one after the other, also while it has no row."""
        await self._c.execute(query("lock_job"), job_id)

    async def lock_jobs(self, job_ids: set[str]) -> dict[str, Job]:
        rows = await self._c.fetch(query("lock_jobs"), sorted(job_ids))
        return {row["id"]: job_of(row) for row in rows}

    async def hold(self, pod: str, *job_ids: str) -> Held:
        """Lock what a Pod holds. The claim may get another job while we wait for the first one's row."""
        seen: str | None = await self._c.fetchval(query("see_claim_of_pod"), pod)
        wanted = {*job_ids, seen} - {None}
        jobs = await self.lock_jobs({job_id for job_id in wanted if job_id is not None})
        row = await self._c.fetchrow(query("lock_claim_of_pod"), pod)
        if row is None:
            return Held(None, jobs)
        if row["job_id"] not in wanted:
            raise _moved_under_us()
        return Held(live_claim_of(row), jobs)

    async def attribute(self, execution: Execution) -> Attributed:
        """Give a runner's claim the job that it executes. The job's advisory lock is held."""
        tenant, runner_name, job_id = execution.tenant, execution.runner_name, execution.job_id
        seen: str | None = await self._c.fetchval(query("see_claim_of_runner"), tenant, runner_name)
        jobs = await self.lock_jobs({job_id} if seen is None else {job_id, seen})
        rows = await self._c.fetch(query("lock_claims_of_execution"), tenant, runner_name, job_id)
        claims = [live_claim_of(row) for row in rows]
        ours = [c for c in claims if c.tenant == tenant and c.runner_name == runner_name]
        executed = jobs.get(job_id)
        if not ours or (executed is not None and executed.spec.tenant != tenant):
            return Attributed(Attribution.UNKNOWN_RUNNER)
        if ours[0].claim.job_id not in {job_id, seen}:
            raise _moved_under_us()
        other = next((c for c in claims if c is not ours[0]), None)
        return await self._settle(ours[0], other, jobs, execution)

    async def _settle(
        self, ours: LiveClaim, other: LiveClaim | None, jobs: dict[str, Job], execution: Execution
    ) -> Attributed:
        handle, executed = ours.claim, jobs.get(execution.job_id)
        if handle.job_id == execution.job_id:
            if ours.executed_at is None:
                await self._rekey(handle, execution.job_id, None, execution.started_at)
            return Attributed(Attribution.MATCHED, ours)
        if ours.executed_at is not None:
            return Attributed(Attribution.CONTRADICTED, ours)
        first = jobs.get(handle.job_id)
        if other is not None:
            await self._rekey(other.claim, _PARKED, None, None)
        repository = executed.spec.repository if executed else None
        await self._rekey(handle, execution.job_id, repository, execution.started_at)
        requeued = ""
        if first is not None and not first.state.over:
            requeued = await self._find_place_for(first, handle, other)
        elif other is not None:
            await self._rekey(other.claim, handle.job_id, None, None)
        if executed is not None and not executed.state.over:
            await self.run(executed, handle, execution.runner_name, execution.started_at)
        return Attributed(Attribution.MOVED, ours, requeued)

    async def _find_place_for(self, job: Job, lost: Claim, other: LiveClaim | None) -> str:
        """Give a job whose runner runs another that one's Pod if there is one, else its old place."""
        if other is None:
            return job.spec.id if await self.requeue(job, lost) else ""
        await self._rekey(other.claim, job.spec.id, job.spec.repository, None)
        if other.delivered_at is None:
            got = other.claim
            await self._c.execute(
                query("bind_job"), job.spec.id, got.pod, got.pod_uid, got.claimed_at
            )
        else:
            await self.run(job, other.claim, other.runner_name, other.delivered_at)
        return ""

    async def _rekey(
        self, claim: Claim, job_id: str, repository: str | None, executed_at: datetime | None
    ) -> None:
        await self._c.execute(
            query("rekey_claim"), claim.pod, claim.claimed_at, job_id, repository, executed_at
        )

    async def run(self, job: Job, claim: Claim, runner_name: str, started_at: datetime) -> Job:
        row = await self._c.fetchrow(
            query("run_job"),
            *(job.spec.id, claim.pod, claim.pod_uid, claim.claimed_at, runner_name, started_at),
        )
        assert row is not None, f"{job.spec.id} was locked, and ended all the same"
        return job_of(row)

    async def requeue(self, job: Job, claim: Claim, hold_until: datetime | None = None) -> bool:
        """Put a job back into its old place if it is still bound to this claim."""
        done = await self._c.fetchval(
            query("requeue_job"), job.spec.id, claim.claimed_at, hold_until
        )
        return done is not None

    async def end_claim(self, claim: Claim) -> None:
        await self._c.execute(query("delete_claim"), claim.pod, claim.claimed_at)

    async def audit(  # noqa: PLR0913 - one row: its columns
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
        await self._c.execute(query("audit"), self._now, who, what, why, job_id, pod, tenant, pool)


def _moved_under_us() -> DatabaseConflict:
    return DatabaseConflict(
        "A claim could not be changed",
        why="it got another job at the same moment",
        fix="Try again; nothing was changed",
    )
