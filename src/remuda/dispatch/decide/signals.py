"""How much work a pool has for its autoscaler. PostgreSQL counts the same way; this is the rule in Python."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.model.job import Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from remuda.model.job import JobSpec, Os, Session

MINUTE = timedelta(minutes=1)
HOUR_MINUTES = 60


def can_start(waiting: Iterable[JobSpec], rooms: Mapping[tuple[str, Os], Size]) -> frozenset[str]:
    """
    Return the jobs that fit their tenants' room together, oldest first, over all pools.

    Two pools that each counted the whole room would both make runners for it. A job that is larger than the room takes
    no part: it must not stand before those that fit.
    """
    taken: dict[tuple[str, Os], Size] = {}
    found = set()
    for spec in sorted(waiting, key=lambda spec: (spec.queued_at, spec.id)):
        key = (spec.tenant, spec.os)
        room = rooms.get(key, Size(0, 0))
        if not spec.size.fits(room):
            continue
        taken[key] = taken.get(key, Size(0, 0)).plus(spec.size)
        if taken[key].fits(room):
            found.add(spec.id)
    return frozenset(found)


def p95_concurrent(sessions: Iterable[Session], now: datetime) -> int:
    """Return how many sessions ran at once in 95 of 100 minutes of the last hour in which any did."""
    listed = list(sessions)
    counts = []
    for minute in range(HOUR_MINUTES, 0, -1):
        begins = now - minute * MINUTE
        counts.append(sum(_overlaps(session, begins) for session in listed))
    busy = sorted(count for count in counts if count)
    return busy[math.ceil(0.95 * len(busy)) - 1] if busy else 0


def _overlaps(session: Session, begins: datetime) -> bool:
    ended = session.ended_at
    return session.started_at < begins + MINUTE and (ended is None or ended > begins)
