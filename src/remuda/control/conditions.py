"""Conditions of our own resources: what holds, since when, and why. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from remuda.kube.times import whole_seconds

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.kube.meta import Condition


def set_condition(
    conditions: tuple[Condition, ...], wanted: Condition, now: datetime
) -> tuple[Condition, ...]:
    """
    Return the conditions with ``wanted`` among them.

    Its ``last_transition_time`` is kept while the status stays the same. If nothing changes, the very same tuple comes
    back, so ``is`` tells whether there is anything to write.
    """
    old = next((c for c in conditions if c.type == wanted.type), None)
    same_status = old is not None and old.status == wanted.status
    since = old.last_transition_time if old is not None and same_status else None
    heartbeat = wanted.last_heartbeat_time
    new = replace(
        wanted,
        last_transition_time=since or whole_seconds(now),
        last_heartbeat_time=whole_seconds(heartbeat) if heartbeat else None,
    )
    if old == new:
        return conditions
    if old is None:
        return (*conditions, new)
    return tuple(new if c.type == wanted.type else c for c in conditions)
