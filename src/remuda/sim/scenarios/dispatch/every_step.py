"""A replica dies at every step between the claim and the answer, one after the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.dispatch.attempt import Step
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import V2, a_warm_fleet, demand_handed, ends_well

if TYPE_CHECKING:
    from remuda.sim.world import World

BACK_S = 60.0
HANDED_S = 5.0


async def play(world: World, options: Options) -> None:
    stage = await a_warm_fleet(world, options)
    for step in Step:
        stage.replicas.die_at(step, times=1)
        job = stage.job(20.0)
        await demand_handed(world, stage, [job], V2, within_s=BACK_S + HANDED_S)
        await asyncio.sleep(60.0)
    await ends_well(world, stage)


EVERY_STEP = Scenario(
    name="killed-at-every-step",
    summary="A replica dies at each step of handing a job over: it is handed over once, within a minute",
    description=(
        "For each step between the claim of a job and the answer to its runner a job is queued, and the replica that "
        "reaches the step dies there. The job must be in a VM a minute later, exactly once; the runner is "
        "serving, returned or replaced; and no registration stays behind."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "V2 no job is lost",
        "V3 no zombies",
        "V7 no leaks",
        "V8 quiet",
    ),
    breaks={"recovery": "nobody mends what a dead replica left half done (V2)"},
    until_s=900.0,
    run=play,
)
