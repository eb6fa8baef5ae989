"""V2, looked at all the time: what was handed to nobody, or to a runner that died, is back in the queue in a minute."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.model.job import JobState
from remuda.model.runner import Phase
from remuda.ports.forge import ForgeState
from remuda.sim.forge.things import HubFaults

if TYPE_CHECKING:
    from remuda.model.job import Job
    from remuda.sim.scenarios.dispatch.stage import DispatchStage

V2 = "V2 no job is lost"
WITHIN_S = 60.0
LOOK_S = 1.0


class Returned:
    """
    Each time a job is lost on its way counts by itself: one that is lost twice may take twice as long.

    Looked at while lines and forge work, whoever dies meanwhile. It is knowable that a job is lost when nothing was
    handed over for its claim, or when its Pod has ended while the forge says that the job still waits.
    """

    def __init__(self, stage: DispatchStage) -> None:
        self._stage = stage
        self._lost: dict[tuple[str, object], float] = {}
        self.longest_s = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._look(self._stage.world.loop.time())

    def _look(self, now: float) -> None:
        stage = self._stage
        works = replace(stage.forge.faults, mint_s=0.0) == HubFaults()
        if stage.world.is_failing or not stage.replicas.is_honest or not works:
            self._lost = {}
            return
        lost = [
            (job.spec.id, job.claim) for job in stage.tables.jobs.values() if self._is_lost(job)
        ]
        self._lost = {key: self._lost.get(key, now) for key in lost}
        for key, since in self._lost.items():
            self.longest_s = max(self.longest_s, now - since)
            if now - since > WITHIN_S:
                what = f"{key[0]} is lost for {now - since:.0f} s and not back in the queue"
                stage.world.verdict.violated(V2, what, "-", now)
                self._lost[key] = now

    def _is_lost(self, job: Job) -> bool:
        if job.state is JobState.CLAIMED:
            return True
        if job.state is not JobState.RUNNING or job.claim is None:
            return False
        runner = self._stage.seen.runners.get(job.claim.pod_uid)
        there = self._stage.forge.jobs[job.spec.id]
        ended = runner is None or runner.phase is Phase.ENDED
        return ended and there.state is ForgeState.QUEUED
