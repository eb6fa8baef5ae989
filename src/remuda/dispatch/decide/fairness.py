"""
Whose turn it is. The claim in SQL decides by the same rule; this one explains it, and the store in memory runs on it.

The least served goes first: who uses the smallest share of its own limit, of the scarcer of vCPU and memory, less what
it has gone without since it was last served. So a burst of one tenant shuts nobody out, and nobody waits for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.model.job import Size

AGEING = timedelta(minutes=10)
"""Going without a job for so long counts as much as the whole of a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queuer:
    """A tenant that waits in a pool's queue, or one of a tenant's repositories."""

    name: str
    used: Size
    limit: Size
    """The tenant's limit, also for a repository: it shares in that."""
    oldest: datetime
    """When its oldest job that may be handed out was queued."""
    oldest_id: str
    served_at: datetime | None = None
    """When it last got a job."""


def share(used: Size, limit: Size) -> float:
    """Return what is in use of a limit: the larger of both shares."""
    return max(used.vcpus / max(limit.vcpus, 1), used.memory_mib / max(limit.memory_mib, 1))


def rank(queuer: Queuer, now: datetime, ageing: timedelta = AGEING) -> float:
    """Return who goes first: the smaller."""
    since = queuer.oldest
    if queuer.served_at is not None:
        since = max(since, queuer.served_at)
    waited_s = max((now - since).total_seconds(), 0.0)
    return share(queuer.used, queuer.limit) - waited_s / ageing.total_seconds()


def in_turn(
    queuers: Iterable[Queuer], now: datetime, ageing: timedelta = AGEING
) -> tuple[Queuer, ...]:
    """Sort by turn; of two that are served alike, the one with the older job is first."""
    return tuple(sorted(queuers, key=lambda q: (rank(q, now, ageing), q.oldest, q.oldest_id)))
