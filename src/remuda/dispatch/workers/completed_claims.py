"""Claims that outlived their job: it ended without anybody having run it, and their Pod waits for another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.decide.pods_gone import outlived
from remuda.dispatch.decide.recovery import Sightings
from remuda.dispatch.workers.inquiry import BY
from remuda.dispatch.workers.turning import each
from remuda.ports.jobs import Release, Released

if TYPE_CHECKING:
    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.model.job import Claim, LiveClaim

log = structlog.get_logger(__name__)

NAME: Final = "completed-claims"
_TICKS: Final = 3
"""Its grace is minutes: it need not look as often as others."""


class CompletedClaims:
    """Ends them by handle, long after the runner should have ended by itself. Its session stays open until it does."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts, self._settings = parts, parts.settings.recovery
        self._seen: Sightings[Claim] = Sightings()

    async def tick(self) -> float:
        parts = self._parts
        claims = await parts.views.claims()
        jobs = {live.claim.job_id for live in claims}
        over = await parts.views.completions(jobs) if jobs else {}
        found = outlived(claims, over.keys())
        for_s = self._seen.look((live.claim for live in found), parts.clock.monotonic())
        due = [live for live in found if for_s[live.claim] >= self._settings.over_s]
        await each(parts, NAME, due[: self._settings.actions_max], self._release)
        return self._settings.tick_s * _TICKS

    async def _release(self, live: LiveClaim) -> None:
        why = "its job is over"
        claim, release = live.claim, Release(by=BY, why=why, runner_name=live.runner_name)
        released = await self._parts.store.release(claim, release)
        if isinstance(released, Released):
            self._parts.metrics.recovered("completed_claim")
            log.warning("claim outlived its job", job=claim.job_id, pod=claim.pod, why=why)
