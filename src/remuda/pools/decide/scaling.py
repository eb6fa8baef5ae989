"""How many runners one pool wants by its own demand. Pure arithmetic; siblings and hosts are looked at elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.ports.dispatch import Signals


def load(signals: Signals) -> int:
    """
    Return how many runners the jobs of this moment need.

    Jobs that wait for their tenant's own limit count as one, however many they are. Counted as none, the pool would
    look idle, lose its last runner on a full fleet and have nobody to take the job once the limit frees; counted in
    full, they would hold runners that may not be used.
    """
    held_back = 1 if signals.withheld > 0 else 0
    return max(0, signals.occupied, signals.claimed) + max(0, signals.queued) + held_back


def target(signals: Signals, *, min_warm: int, max_replicas: int) -> int:
    """Return what the pool would have if it were alone on its fleet. ``min_warm`` is added, and no minimum as well."""
    busy = max(load(signals), signals.p95_concurrent_last_hour)
    return max(0, min(max_replicas, busy + min_warm))
