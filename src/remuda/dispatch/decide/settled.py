"""
Which audit entries can be told in order. Pure.

Their numbers are given out before their transactions end, so a smaller number can appear after a greater one. Whoever
follows by "the last number that I saw" would miss it. So what stands behind a gap waits: until the gap is filled, or
until no transaction that took its number can be open any more.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from remuda.model.job import AuditEntry

SETTLES: Final = timedelta(seconds=5)
"""Longer than a transaction stays open after it wrote its audit entry: that is the last thing that most of them do."""


def settled(
    entries: Sequence[AuditEntry], after: int, now: datetime, settles: timedelta = SETTLES
) -> tuple[AuditEntry, ...]:
    """Return the entries behind ``after`` that nothing can come before any more. They are sorted by number."""
    told: list[AuditEntry] = []
    last = after
    for entry in entries:
        if entry.number > last + 1 and now - entry.at < settles:
            break  # the gap before it is young: somebody may still be about to fill it
        told.append(entry)
        last = entry.number
    return tuple(told)
