"""What the store of jobs can be asked: for people, for the autoscaler and for the workers that mend what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from remuda.model.job import (
        AuditEntry,
        Completion,
        Job,
        JobState,
        LiveClaim,
        Session,
        Standing,
    )
    from remuda.ports.dispatch import Signals

CLAIMABLE_MAX = 100
"""``claimable`` counts no further."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A tenant with work in a pool, as the order of turns sees it."""

    standing: Standing
    oldest: datetime
    """When its oldest job that may be handed out was queued."""


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits in a pool."""

    count: int
    oldest: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What decides when a job's turn comes: the same facts that a claim looks at."""

    job: Job
    standing: Standing | None
    """None: its tenant has no limit set, so it may take nothing."""
    ahead: int
    """Jobs of the same tenant and pool with an older place that may be handed out now."""
    turns: tuple[Turn, ...]
    """The tenants that have work in this pool and a limit, whose turn is first, first."""
    claims: tuple[LiveClaim, ...]
    """What its tenant holds on this OS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a person asks for. What is left out narrows nothing."""

    states: frozenset[JobState] = frozenset()
    pool: str | None = None
    tenant: str | None = None
    repository: str | None = None


class JobViews(Protocol):
    """Reads. Each is one snapshot; what it shows may be old the moment it arrives."""

    async def job(self, job_id: str) -> Job | None: ...

    async def jobs(
        self,
        *,
        states: Collection[JobState],
        queued_before: datetime | None = None,
        started_before: datetime | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 100,
    ) -> tuple[Job, ...]:
        """Return jobs by place. ``after`` is the place of the last one of the page before: (queued_at, id)."""
        ...

    async def newest(
        self, wanted: JobFilter, *, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> tuple[Job, ...]:
        """Return jobs by place, the newest first. ``before`` is the place of the last one of the page before."""
        ...

    async def claims(
        self, *, claimed_before: datetime | None = None, undelivered: bool = False
    ) -> tuple[LiveClaim, ...]:
        """Return the claims that stand, oldest first; ``undelivered``: only those that nothing was minted for."""
        ...

    async def claim_of(self, pod: str) -> LiveClaim | None: ...

    async def sessions(
        self, *, open_only: bool = True, started_before: datetime | None = None, limit: int = 1000
    ) -> tuple[Session, ...]:
        """Return sessions, oldest first."""
        ...

    async def session_of(self, pod: str) -> Session | None:
        """Return the newest session of a Pod."""
        ...

    async def occupied_pods(self) -> frozenset[str]:
        """Return the Pods with a claim or an open session. Never reap one of these."""
        ...

    async def completions(self, job_ids: Collection[str]) -> Mapping[str, Completion]: ...

    async def standings(self, tenant: str | None = None) -> tuple[Standing, ...]: ...

    async def signals(self, pool: str) -> Signals:
        """Return how much work a pool has. A tenant's room is counted once, for its oldest jobs, over all pools."""
        ...

    async def claimable(self) -> Mapping[str, int]:
        """
        Return for each pool how many of its jobs could be handed out now, at most a hundred; pools without are absent.

        One statement, cheap however long the queues are: each replica asks once a second, in case a wake-up was lost.
        """
        ...

    async def queues(self) -> Mapping[str, Queue]:
        """Return how long each pool's queue is, with what is held back; pools without one are absent."""
        ...

    async def recent_repositories(self, *, since: datetime, limit: int) -> tuple[str, ...]:
        """Return the repositories with a job that was queued since then, the one with the newest job first."""
        ...

    async def waiting(self, job_id: str) -> Waiting | None:
        """Return what a queued job waits for; None if it does not wait."""
        ...

    async def audit(
        self, *, after: int = 0, job_id: str | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """
        Return audit entries by number.

        Whoever asks again with the last number that it got misses none, however late an entry was committed: those that
        a smaller number may still come before are left out, for that moment. With ``job_id`` none is.
        """
        ...

    async def audit_end(self) -> int:
        """Return the number up to which ``audit`` returns everything now: ask for what comes after it."""
        ...
