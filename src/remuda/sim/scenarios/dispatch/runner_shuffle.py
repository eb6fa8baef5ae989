"""The forge gives each job to any runner that has its labels, not to the one that was registered for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import (
    V2,
    a_warm_fleet,
    demand_handed,
    ends_well,
    violated,
)

if TYPE_CHECKING:
    from remuda.sim.forge.things import HubJob
    from remuda.sim.scenarios.dispatch.stage import DispatchStage
    from remuda.sim.world import World

JOBS = 6
TOLD_S = 15.0
"""How long after a job began its message may take to arrive and be worked off."""
S6 = "S6 hints are hints"


async def play(world: World, options: Options) -> None:
    stage = await a_warm_fleet(world, options, hosts=3, vms=3, replicas=JOBS)
    jobs = [stage.job(90.0 + 30.0 * number) for number in range(JOBS)]
    await demand_handed(world, stage, jobs, V2, within_s=30.0)
    # One is cancelled while it waits for its runner: the runner may still get another.
    await asyncio.sleep(TOLD_S)
    _look(world, stage, jobs)
    stage.forge.cancel(jobs[0])
    await asyncio.sleep(60.0)
    _look(world, stage, jobs)
    await ends_well(world, stage)


def _look(world: World, stage: DispatchStage, jobs: list[HubJob]) -> None:
    """See that every row names the Pod whose runner really executes the job, and that each claim is for that job."""
    shuffled = 0
    for run in stage.guests.working():
        assert run.hub_job is not None
        shuffled += run.hub_job.id != run.job_id
        row = stage.tables.jobs.get(run.hub_job.id)
        claim = stage.tables.claims.get(run.pod)
        if row is None:
            violated(world, S6, f"{run.hub_job.id} runs on {run.pod}, and has no row")
        elif row.claim is None or row.claim.pod != run.pod or row.runner_name != run.name:
            on = row.claim.pod if row.claim else "nobody"
            violated(world, S6, f"{run.hub_job.id} runs on {run.pod}, and its row says {on}")
        elif claim is None or claim.claim.job_id != run.hub_job.id:
            held = claim.claim.job_id if claim else "nothing"
            violated(world, S6, f"{run.pod} runs {run.hub_job.id}, and its claim is for {held}")
    what = f"{shuffled} of {len(jobs)} jobs run on another's runner"
    world.trace.note("world", "shuffled", "-", str(shuffled), what)


RUNNER_SHUFFLE = Scenario(
    name="runner-shuffle",
    summary="When the forge gives jobs to each other's runners, both rows are right at the first message",
    description=(
        "Six jobs with the same labels are queued at once, and the forge deals them out to the six runners as it "
        "likes. At the first word of who executes what, every job's row names the Pod on which it runs, every claim "
        "the job that it holds, no job is queued again and nothing is released twice."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "S3 budgets",
        "S6 hints are hints",
        "V2 no job is lost",
        "V7 no leaks",
        "V8 quiet",
    ),
    breaks={"attribution": "what the forge says about who executes a job is not believed (S6)"},
    until_s=600.0,
    run=play,
)
