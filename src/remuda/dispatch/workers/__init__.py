"""
The workers that mend what went wrong. Each looks at what is, not at what it was told; losing any message costs time.

Each lists first and acts on nothing that it could not read; is bounded in each turn; carries the handle that it saw;
and leaves what fails for its next turn.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from remuda.dispatch.workers import (
    completed_claims,
    gauges,
    missing_pods,
    orphaned_runners,
    retention,
    stale_claims,
    stale_queued,
    stamped_pods,
    unused_registrations,
)
from remuda.dispatch.workers.parts import RecoveryParts
from remuda.dispatch.workers.turning import alone, turn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from remuda.dispatch.workers.turning import Worker

__all__ = ["ALONE", "RecoveryParts", "recovery_loops"]

ALONE: Final[Mapping[str, Callable[[RecoveryParts], Worker]]] = {
    stale_claims.NAME: stale_claims.StaleClaims,
    orphaned_runners.NAME: orphaned_runners.OrphanedRunners,
    missing_pods.NAME: missing_pods.MissingPods,
    stamped_pods.NAME: stamped_pods.StampedPods,
    stale_queued.NAME: stale_queued.StaleQueued,
    completed_claims.NAME: completed_claims.CompletedClaims,
    unused_registrations.NAME: unused_registrations.UnusedRegistrations,
    retention.NAME: retention.Retention,
}


def recovery_loops(parts: RecoveryParts) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """Return the loops that run until cancelled: each worker alone among the replicas, and this replica's gauges."""
    loops = {name: alone(parts, name, make) for name, make in ALONE.items()}
    return {**loops, gauges.NAME: partial(_gauges, parts)}


async def _gauges(parts: RecoveryParts) -> None:
    await parts.view.wait_synced()
    await turn(parts, gauges.NAME, gauges.Gauges(parts))
