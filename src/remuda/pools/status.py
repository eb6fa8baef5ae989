"""
What the operator says about a pool: counts, conditions, and where its roll stands.

Touched keys only, and only when something changed: a pool at rest costs no write. Changed counts are collected for a
moment, changed conditions go at once. What was written is remembered until it is seen, so that a view that is behind
neither repeats a write nor takes one back.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from remuda.control.conditions import set_condition
from remuda.kube.meta import Condition
from remuda.kube.names import POOL, RUNNER
from remuda.kube.patches import MergePatch
from remuda.kube.proven import remembered
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.kube.times import whole_seconds
from remuda.ports.kube import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.kube.patches import JsonValue
    from remuda.kube.runner_pool import RunnerPool, RunnerPoolStatus
    from remuda.pools.decide.conditions import Wanted
    from remuda.pools.decide.counts import Counts
    from remuda.pools.reins import Reins

_COUNTS: Final = frozenset({"replicas", "warm", "busy", "starting", "stale", "rolling", "rollCap"})


def with_counts(status: RunnerPoolStatus, pool: RunnerPool, counts: Counts) -> RunnerPoolStatus:
    """Return the status with what was counted. A 0 is said, never left out."""
    return replace(
        status,
        observed_generation=pool.metadata.generation,
        selector=f"{RUNNER}=true,{POOL}={pool.name}",
        replicas=counts.alive,
        warm=counts.warm,
        busy=counts.busy,
        starting=counts.starting,
        stale=counts.stale,
        rolling=counts.unavailable,
        roll_cap=counts.roll_cap,
    )


def with_conditions(
    status: RunnerPoolStatus, wanted: Iterable[Wanted], now: datetime, generation: int
) -> RunnerPoolStatus:
    """Return the status with these conditions among its own."""
    conditions = status.conditions
    for one in wanted:
        condition = Condition(
            type=one.type,
            status=one.status,
            reason=one.reason,
            message=one.message,
            observed_generation=_observed(conditions, one, generation),
        )
        conditions = set_condition(conditions, condition, now)
    return status if conditions is status.conditions else replace(status, conditions=conditions)


def with_roll_waiting(status: RunnerPoolStatus, since: datetime | None) -> RunnerPoolStatus:
    return replace(status, roll_waiting_since=None if since is None else whole_seconds(since))


def with_proven(status: RunnerPoolStatus, pool: RunnerPool, template: str) -> RunnerPoolStatus:
    """Return the status with the pool's template as the one that worked."""
    return replace(status, proven_template=remembered(pool, template))


def _observed(conditions: tuple[Condition, ...], wanted: Wanted, generation: int) -> int:
    """Keep the generation of a condition that stays as it is: a new spec alone is no news about it."""
    said = (wanted.type, wanted.status, wanted.reason, wanted.message)
    for old in conditions:
        if (old.type, old.status, old.reason, old.message) == said and old.observed_generation:
            return old.observed_generation
    return generation


_LATE_S: Final = 0.001


class StatusWriter:
    """Writes the statuses of pools, each no more often than it must."""

    def __init__(self, reins: Reins) -> None:
        self._kube, self._clock = reins.kube, reins.clock
        self._namespace = reins.settings.namespace
        self._spacing_s = reins.settings.status_spacing_s
        self._written: dict[str, tuple[str, RunnerPool]] = {}
        self._written_at: dict[str, float] = {}

    def newest(self, pool: RunnerPool) -> RunnerPool:
        """Return the pool with the newest status that we know of: what we wrote, while the view is still before it."""
        before, after = self._written.get(pool.name, ("", pool))
        if before == pool.resource_version and after.uid == pool.uid:
            return replace(pool, status=after.status)
        self._written.pop(pool.name, None)
        return pool

    async def write(self, pool: RunnerPool, status: RunnerPoolStatus) -> timedelta | None:
        """Say what changed. Returns when to look again, if that is put off for a moment."""
        changes = _changes(self.newest(pool).status, status)
        if not changes:
            return None
        wait_s = self._wait_s(pool.name)
        if wait_s > 0 and not _is_urgent(self.newest(pool).status, status, changes):
            # A little late: a look that comes a rounding error too early would only be put off again, without end.
            return timedelta(seconds=wait_s + _LATE_S)
        patch = MergePatch({"metadata": {"uid": pool.uid}, "status": changes})
        try:
            after = await self._kube.patch(
                RUNNER_POOL, pool.name, patch, namespace=self._namespace, subresource="status"
            )
        except (NotFound, Conflict):
            return None  # it went, or is another one: its own news wakes us
        self._written[pool.name] = (pool.resource_version, after)
        self._written_at[pool.name] = self._clock.monotonic()
        return None

    def forget(self, pool: str) -> None:
        self._written.pop(pool, None)
        self._written_at.pop(pool, None)

    def _wait_s(self, pool: str) -> float:
        last = self._written_at.get(pool, float("-inf"))
        return last + self._spacing_s - self._clock.monotonic()


def _changes(before: RunnerPoolStatus, after: RunnerPoolStatus) -> dict[str, JsonValue]:
    old: dict[str, JsonValue] = msgspec.to_builtins(before)
    new: dict[str, JsonValue] = msgspec.to_builtins(after)
    changes: dict[str, JsonValue] = {k: v for k, v in new.items() if old.get(k) != v}
    changes |= {key: None for key in old if key not in new}
    return changes


def _is_urgent(
    before: RunnerPoolStatus, after: RunnerPoolStatus, changes: dict[str, JsonValue]
) -> bool:
    """Say whether more than numbers and wording changed."""
    if (before.roll_waiting_since is None) != (after.roll_waiting_since is None):
        return True
    if changes.keys() - _COUNTS - {"rollWaitingSince", "conditions"}:
        return True
    return _gist(before.conditions) != _gist(after.conditions)


def _gist(conditions: tuple[Condition, ...]) -> set[tuple[str, str, str]]:
    return {(c.type, c.status, c.reason) for c in conditions}
