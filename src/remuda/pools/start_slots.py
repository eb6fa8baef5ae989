"""
The start slots of fleets: who starts, who waits, and how many runners a pool may begin to start now.

Slots are shared by turns of the event loop, so what one pool takes the next one sees. Who waits is remembered between
looks: without that, a pool that looks at the right moment takes every slot that becomes free, again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from remuda.pools.decide.brake import PATIENCE, Claim, Slots, share, slots
from remuda.pools.decide.starting import since

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.pool import Pool
    from remuda.pools.reins import Reins

_NO_BRAKE: Final = 1_000_000
_LATE_S: Final = 15.0
"""A pool that waits looks every few seconds. One that has not for so long is in other trouble: its share is free."""


@dataclass(frozen=True, slots=True)
class _Queued:
    wants: int
    since: float
    looked_at: float


@dataclass(frozen=True, slots=True)
class _Offered:
    """What a pool was last told."""

    free: int
    """How many it may take."""
    starting: int
    """How many it holds."""
    full: bool = False
    """It holds as many as there are: it waits for itself."""


class StartSlots:
    """The slots of all fleets, in one reign."""

    def __init__(self, reins: Reins) -> None:
        self._reins = reins
        self._queued: dict[str, _Queued] = {}
        self._offered: dict[str, _Offered] = {}

    def of(self, pool: Pool, now: datetime) -> Slots:
        """Return how many runners of a pool may begin to start."""
        if not self._reins.settings.guards.brake:
            return Slots(_NO_BRAKE)
        view = self._reins.view
        siblings = view.siblings(pool.fleet)
        starting = self._starting(pool, siblings, now)
        maxima = [sibling.spec.provisioning.max_concurrent for sibling in siblings]
        total = sum(len(names) for names in starting.values())
        found = slots(maxima, total, view.fleet_nodes(pool.fleet).healthy)
        claims = {name: self._claim(name, len(names)) for name, names in starting.items()}
        own = claims.pop(pool.name, Claim(pool=pool.name, starting=0))
        if found.most is not None and found.free:
            free = min(found.free, share(found.most, own, claims.values()) - own.starting)
            found = replace(found, free=free) if free > 0 else Slots(0, "fleet_cap", found.most)
        full = found.most is not None and own.starting >= found.most
        self._offered[pool.name] = _Offered(found.free, own.starting, full)
        return found

    def took(self, pool: str, got: int, wants: int) -> None:
        """
        Take note of how many of its slots a pool took, and how many more it wants: its siblings leave it its share.

        One that left some of its own free, or holds all, does not wait for its siblings.
        """
        offered = self._offered.get(pool, _Offered(0, 0))
        if wants <= 0 or got < offered.free or offered.full:
            self._queued.pop(pool, None)
            return
        now, before = self._reins.clock.monotonic(), self._queued.get(pool)
        # Who got or still holds something is at the end of the queue.
        waited = before is not None and not got and not offered.starting
        first = before.since if before is not None and waited else now
        self._queued[pool] = _Queued(wants, first, now)

    def forget(self, pool: str) -> None:
        self._queued.pop(pool, None)
        self._offered.pop(pool, None)

    def _starting(
        self, pool: Pool, siblings: Iterable[RunnerPool], now: datetime
    ) -> dict[str, set[str]]:
        """Return by pool who of the fleet is starting, as far as that holds ``pool`` back."""
        view, expectations = self._reins.view, self._reins.expectations
        endless = {s.name for s in siblings if not s.spec.provisioning.start_timeout_seconds}
        endless.discard(pool.name)
        starting: dict[str, set[str]] = {
            s.name: {placeholder.name for placeholder in expectations.placeholders(s.name)}
            for s in siblings
        }
        for of, runner in view.starting(pool.fleet):
            patient = of not in endless or now - since(runner) < PATIENCE
            if patient and not view.is_silent(runner):
                starting.setdefault(of, set()).add(runner.name)
        return starting

    def _claim(self, pool: str, starting: int) -> Claim:
        queued = self._queued.get(pool)
        if queued is None or self._reins.clock.monotonic() - queued.looked_at > _LATE_S:
            return Claim(pool=pool, starting=starting)
        return Claim(pool=pool, starting=starting, wants=queued.wants, since=queued.since)
