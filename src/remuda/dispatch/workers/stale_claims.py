"""Claims that nothing came of: their replica died or hangs between the claim and the hand-over. The job goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.decide.recovery import Sightings, soonest
from remuda.dispatch.workers.inquiry import BY
from remuda.dispatch.workers.turning import each
from remuda.ports.jobs import Release, Released

if TYPE_CHECKING:
    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.model.job import Claim, LiveClaim

log = structlog.get_logger(__name__)

NAME: Final = "stale-claims"


class StaleClaims:
    """
    Releases by handle what has been undelivered for too long on our own clock.

    The claim goes first and the stamp after it: as long as the claim stands, a paused replica could still hand its job
    over, and a runner with a job must not be without its stamp.
    """

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts, self._settings = parts, parts.settings.recovery
        self._seen: Sightings[Claim] = Sightings()

    async def tick(self) -> float:
        parts, grace_s = self._parts, self._settings.stale_claim_s
        claims = await parts.views.claims(undelivered=True)
        for_s = self._seen.look((live.claim for live in claims), parts.clock.monotonic())
        stale = [live for live in claims if for_s[live.claim] >= grace_s]
        left = [live for live in claims if for_s[live.claim] < grace_s]
        await each(parts, NAME, stale[: self._settings.actions_max], self._release)
        waits = (grace_s - for_s[live.claim] for live in left)
        return soonest(waits, at_most=self._settings.tick_s)

    async def _release(self, live: LiveClaim) -> None:
        claim, parts = live.claim, self._parts
        why = f"nothing was handed over for {self._settings.stale_claim_s:g} s"
        release = Release(by=BY, why=why, undelivered=True, runner_name="")
        released = await parts.store.release(claim, release)
        if not isinstance(released, Released):
            return  # it was handed over, or somebody else released it
        parts.metrics.recovered("stale_claim")
        log.warning("stale claim released", job=claim.job_id, pod=claim.pod, why=why)
        await parts.stamps.unstamp(claim)
