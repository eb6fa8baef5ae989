"""Whose job a Pod gets, over the tables in memory: as ``migrations/0002_claiming.sql`` decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.dispatch.decide.fairness import Queuer, in_turn
from remuda.model.job import Size
from remuda.ports.job_views import Turn
from remuda.ports.jobs import ANYTHING

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from remuda.model.job import Job, Standing
    from remuda.ports.jobs import Without
    from remuda.sim.jobs.tables import Tables

_NOTHING = Size(0, 0)


def may_go(tables: Tables, pool: str, now: datetime, without: Without = ANYTHING) -> list[Job]:
    """Return what may be handed out in a pool, by place."""
    return [
        job
        for job in tables.waiting(pool)
        if (job.hold_until is None or job.hold_until <= now)
        and job.spec.tenant not in without.tenants
        and job.spec.repository not in without.repositories
        and job.spec.id not in without.jobs
    ]


def turns(tables: Tables, jobs: list[Job], now: datetime, ageing: timedelta) -> tuple[Turn, ...]:
    """Return the tenants that have one of these jobs and a limit, in the order of their turns."""
    heads: dict[str, Job] = {}
    for job in jobs:
        heads.setdefault(job.spec.tenant, job)
    standings = {
        tenant: standing
        for tenant, job in heads.items()
        if (standing := tables.limits.get((tenant, job.spec.os))) is not None
    }
    queuers = [_tenant(standing, heads[tenant]) for tenant, standing in standings.items()]
    return tuple(Turn(standings[q.name], q.oldest) for q in in_turn(queuers, now, ageing))


def pick(
    tables: Tables, standing: Standing, jobs: list[Job], now: datetime, ageing: timedelta
) -> Job | None:
    """Return the tenant's job whose turn it is: the least served repository, in it the oldest that fits."""
    heads: dict[str, Job] = {}
    for job in jobs:
        ours = (job.spec.tenant, job.spec.os) == (standing.tenant, standing.os)
        if ours and job.spec.size.fits(standing.room):
            heads.setdefault(job.spec.repository, job)
    first = in_turn([_repository(tables, standing, job) for job in heads.values()], now, ageing)
    return heads[first[0].name] if first else None


def _tenant(standing: Standing, head: Job) -> Queuer:
    return Queuer(
        name=standing.tenant,
        used=standing.used,
        limit=standing.limit,
        oldest=head.spec.queued_at,
        oldest_id=head.spec.id,
        served_at=standing.last_claimed_at,
    )


def _repository(tables: Tables, standing: Standing, head: Job) -> Queuer:
    key = (standing.tenant, standing.os, head.spec.repository)
    held = [c for c in tables.claims.values() if (c.tenant, c.os, c.repository) == key]
    used = _NOTHING
    for claim in held:
        used = used.plus(claim.size)
    return Queuer(
        name=head.spec.repository,
        used=used,
        limit=standing.limit,
        oldest=head.spec.queued_at,
        oldest_id=head.spec.id,
        served_at=max((c.claim.claimed_at for c in held), default=None),
    )
