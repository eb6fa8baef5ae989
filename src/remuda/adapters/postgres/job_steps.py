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

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.adapters.postgres.pool import Pooled
    from remuda.model.job import Claim, Job, LiveClaim


@dataclass(frozen=True, slots=True)
class Held:
    """What a Pod holds, locked: its claim, and the job of the claim if that is known here."""

    claim: LiveClaim | None
    jobs: dict[str, Job]

    def job(self, job_id: str) -> Job | None:
        return self.jobs.get(job_id)


class JobSteps:
    """Steps on one connection that is inside a transaction."""

    def __init__(self, connection: Pooled, now: datetime) -> None:
        self._c = connection
        self._now = now

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
            raise moved_under_us()
        return Held(live_claim_of(row), jobs)

    async def requeue(self, job: Job, claim: Claim, hold_until: datetime | None = None) -> bool:
        """Put a job back into its old place if it is still bound to this claim."""
        return bool(
            await self._c.fetchval(query("requeue_job"), job.spec.id, claim.claimed_at, hold_until)
        )

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


def moved_under_us() -> DatabaseConflict:
    return DatabaseConflict(
        "A claim could not be changed",
        why="it got another job at the same moment",
        fix="Try again; nothing was changed",
    )
