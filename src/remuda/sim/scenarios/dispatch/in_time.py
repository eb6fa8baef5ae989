"""
V1, looked at all the time: work and a free runner are never both there for long, in any calm stretch of any story.

Calm is when nothing is wrong and what was wrong has had its time to heal: a poll whose answer was lost ends by its own
timeout, a frozen watch by the next list. What is looked at are the tables and the store; nobody's opinion is asked.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.model.job import JobState
from remuda.model.runner import Phase
from remuda.sim.dispatch.lines import POLL_TIMEOUT_S
from remuda.sim.forge.things import HubFaults

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.model.job import Job
    from remuda.model.runner import Runner
    from remuda.sim.scenarios.dispatch.stage import DispatchStage

V1 = "V1 handed out in time"
WITHIN_S = 5.0
LOOK_S = 0.5
RETRY_S = 5.0
"""After a process died: the connection is refused, the caller waits two seconds and asks another."""
HEAL_S = POLL_TIMEOUT_S + 30.0
"""After a line failed: a poll that hangs ends by its timeout, and a watch that is stuck by the next list (60 s)."""


class InTime:
    """
    A job that could be handed out for five seconds while one runner could have taken it for five is a violation.

    A claim that was given back does not begin a job's time anew, unless it lasted: then its replica had died.
    """

    def __init__(self, stage: DispatchStage) -> None:
        self._stage = stage
        self.longest_s = 0.0
        """How long both were there at most."""
        self.looked_s = 0.0
        """How much calm there was."""
        self._calm_from = 0.0
        self._wrong: tuple[int, int] = (0, 0)
        self._waiting: dict[str, float] = {}
        self._claimed: dict[str, float] = {}
        self._free: dict[str, float] = {}
        """Since when each job and each runner has been so."""

    async def run(self) -> None:
        loop = self._stage.world.loop
        while True:
            await asyncio.sleep(LOOK_S)
            self._look(loop.time())

    def _look(self, now: float) -> None:
        self._calm_from = max(self._calm_from, now + self._heals_in_s())
        if now < self._calm_from:
            self._waiting, self._claimed, self._free = {}, {}, {}
            return
        self.looked_s += LOOK_S
        jobs = self._jobs(now)
        pools = {job.spec.pool for job in jobs}
        free = [runner for pool in sorted(pools) for runner in self._stage.seen.of(pool)]
        free = [runner for runner in free if self._is_free(runner)]
        self._free = {runner.uid: self._free.get(runner.uid, now) for runner in free}
        for job in jobs:
            self._judge(job, (r for r in free if self._pool_of(r) == job.spec.pool), now)

    def _judge(self, job: Job, free: Iterable[Runner], now: float) -> None:
        runner = min(free, key=lambda r: (self._free[r.uid], r.name), default=None)
        if runner is None:
            return
        lasted_s = now - max(self._waiting[job.spec.id], self._free[runner.uid])
        self.longest_s = max(self.longest_s, lasted_s)
        if lasted_s > WITHIN_S:
            what = f"{job.spec.id} and {runner.name} both wait for {lasted_s:.1f} s"
            self._stage.world.verdict.violated(V1, what, "-", now)
            self._waiting[job.spec.id] = now

    # --- what is calm -------------------------------------------------------------------------------------------

    def _heals_in_s(self) -> float:
        """Return how long what is wrong now, or was since the last look, may be felt."""
        world, forge, replicas = self._stage.world, self._stage.forge, self._stage.replicas
        died = world.disturbances["crash"] + world.disturbances["stop"]
        wrong = (died, sum(world.disturbances.values()) - died + sum(world.trace.faults.values()))
        before, self._wrong = self._wrong, wrong
        if forge.faults.refuses:
            return self._stage.settings.polls.hold_max_s  # a tenant that was refused is passed over
        if wrong[1] != before[1] or world.is_failing or not replicas.is_honest:
            return HEAL_S
        if replace(forge.faults, mint_s=0.0) != HubFaults():
            return HEAL_S
        alone = not self._stage.balancer.replicas
        return RETRY_S if wrong[0] != before[0] or alone else 0.0

    # --- what could go together ---------------------------------------------------------------------------------

    def _jobs(self, now: float) -> list[Job]:
        """Return what could be handed out, and keep since when."""
        at, tables = self._stage.database.clock.now(), self._stage.tables
        found = [job for job in tables.jobs.values() if self._could_go(job, at)]
        claimed = {live.claim.job_id for live in tables.claims.values()}
        self._claimed = {job_id: self._claimed.get(job_id, now) for job_id in sorted(claimed)}
        waits = {job.spec.id: self._waiting.get(job.spec.id, now) for job in found}
        tried = {
            job_id: since
            for job_id, since in self._waiting.items()
            if now - self._claimed.get(job_id, float("-inf")) <= WITHIN_S
        }
        self._waiting = {**tried, **waits}
        return found

    def _could_go(self, job: Job, at: datetime) -> bool:
        if job.state is not JobState.QUEUED or (job.hold_until is not None and job.hold_until > at):
            return False
        standing = self._stage.tables.limits.get((job.spec.tenant, job.spec.os))
        return standing is not None and job.spec.size.fits(standing.room)

    def _is_free(self, runner: Runner) -> bool:
        stage = self._stage
        return (
            runner.phase is Phase.WARM
            and runner.is_alive
            and runner.mark is None
            and not stage.stamped.owners.get(runner.uid)
            and runner.uid not in stage.guests.of_vm
            and runner.uid not in stage.tables.sessions
            and runner.name not in stage.tables.claims
        )

    def _pool_of(self, runner: Runner) -> str:
        return self._stage.seen.pool_of[runner.uid]
