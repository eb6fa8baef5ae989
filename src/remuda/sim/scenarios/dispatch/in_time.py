"""V1, looked at all the time: work and a free runner are never both there for long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.model.runner import Phase
from remuda.sim.scenarios.dispatch.acts import V1, violated

if TYPE_CHECKING:
    from remuda.model.job import Job
    from remuda.sim.scenarios.dispatch.stage import DispatchStage

WITHIN_S = 5.0


class InTime:
    """Samples once in half a second, from the tables and the store: nobody's opinion is asked."""

    def __init__(self, stage: DispatchStage, *, within_s: float = WITHIN_S) -> None:
        self._stage, self._within_s = stage, within_s
        self.longest_s = 0.0
        self.is_on = True

    async def run(self) -> None:
        since: float | None = None
        loop = self._stage.world.loop
        while True:
            await asyncio.sleep(0.5)
            job = self._stuck()
            if job is None or not self.is_on:
                since = None
                continue
            since = loop.time() if since is None else since
            lasted_s = loop.time() - since
            self.longest_s = max(self.longest_s, lasted_s)
            if lasted_s > self._within_s:
                what = f"{job.spec.id} and a warm runner both wait for {lasted_s:.1f} s"
                violated(self._stage.world, V1, what)
                since = None

    def _stuck(self) -> Job | None:
        """Return a job that could be handed out now, if there is one and a runner for it."""
        stage = self._stage
        now = stage.database.clock.now()
        for job in stage.tables.waiting():
            standing = stage.tables.limits.get((job.spec.tenant, job.spec.os))
            held = job.hold_until is not None and job.hold_until > now
            if held or standing is None or not job.spec.size.fits(standing.room):
                continue
            if self._is_free(job.spec.pool):
                return job
        return None

    def _is_free(self, pool: str) -> bool:
        stage = self._stage
        return any(
            runner.phase is Phase.WARM
            and runner.is_alive
            and runner.mark is None
            and not stage.stamped.owners.get(runner.uid)
            and stage.guests.alive(runner.uid) is None
            for runner in stage.seen.of(pool)
        )
