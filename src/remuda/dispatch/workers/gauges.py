"""
What stands and waits now, and what should never be: set as gauges at each turn.

Every replica does this, without a lock: each is scraped by itself, and a gauge that only the holder of a lock sets goes
stale in the others when the lock moves. An alert takes the greatest over the replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.dispatch.doctor import Doctor

if TYPE_CHECKING:
    from remuda.dispatch.workers.parts import RecoveryParts

NAME: Final = "gauges"
_EXAMINED_EVERY: Final = 3
"""In turns: an examination reads every claim."""


class Gauges:
    """Reads and shows. It mends nothing."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts
        self._doctor = Doctor(parts)
        self._turns = 0

    async def tick(self) -> float:
        parts = self._parts
        await self._queues()
        parts.metrics.deliveries_waiting.set(await parts.deliveries.backlog())
        if self._turns % _EXAMINED_EVERY == 0:
            for invariant, found in (await self._doctor.examine()).items():
                parts.metrics.violations(invariant, len(found))
        self._turns += 1
        return parts.settings.recovery.tick_s

    async def _queues(self) -> None:
        parts, now = self._parts, self._parts.clock.now()
        queues = await parts.views.queues()
        ages = {
            pool: (queue.count, (now - queue.oldest).total_seconds())
            for pool, queue in queues.items()
        }
        parts.metrics.queues(ages, (pool.name for pool in parts.view.pools()))
