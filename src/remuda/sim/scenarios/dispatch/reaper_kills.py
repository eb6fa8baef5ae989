"""Long jobs lose their claims while they run, beside a reaper of stamped runners without a claim."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.sim.forge.things import PostRates
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import V2, a_warm_fleet, demand_handed, ends_well
from remuda.sim.scenarios.dispatch.stage import REPLICAS

if TYPE_CHECKING:
    from remuda.sim.scenarios.dispatch.stage import DispatchStage
    from remuda.sim.world import World

LONG_S = 1200.0
LAG_S = 150.0
JOBS = 3


async def play(world: World, options: Options) -> None:
    stage = await a_warm_fleet(world, options, hosts=3, vms=4, replicas=6)
    jobs = [stage.job(LONG_S + 60.0 * number) for number in range(JOBS)]
    # No word of their beginning comes, and who asks is told what was so two minutes ago.
    stage.forge.post.rates, stage.forge.faults.lag_s = PostRates(dropped=1.0), LAG_S
    await demand_handed(world, stage, jobs, V2, within_s=60.0)
    await asyncio.sleep(LAG_S)
    _lose_claims(world, stage)
    for name in REPLICAS:
        await asyncio.sleep(60.0)
        world.crash(name, why="a deploy in the middle of it")
    await asyncio.sleep(LONG_S)
    stage.forge.post.rates, stage.forge.faults.lag_s = PostRates(), 0.0
    await ends_well(world, stage, within_s=1500.0)


def _lose_claims(world: World, stage: DispatchStage) -> None:
    """Lose the claims of runners at work, as by a table that was put back to an older state."""
    for run in stage.guests.working():
        if (live := stage.tables.claims.get(run.pod)) is not None:
            stage.tables.end_claim(live.claim)
            world.trace.note("world", "claim", run.pod, "lost", "it works, and nothing says so")


REAPER_KILLS_LIVE_JOB = Scenario(
    name="reaper-kills-live-job",
    summary="A stamped runner that executes a job is not reaped, even when its claim is long gone",
    description=(
        "In the field the reaper of stamped runners killed live jobs: no claim was taken for idle. Here three jobs of "
        "twenty minutes begin while no message arrives and the forge, when asked, says for a while that they are still "
        "queued. Then their claims are lost although they run, and replicas die. Whoever reaps must see that those "
        "runners are at work, and let them finish."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "V2 no job is lost",
        "V3 no zombies",
        "V7 no leaks",
        "V8 quiet",
    ),
    breaks={"proof": "a stamped runner without a claim is taken for idle (S2)"},
    until_s=2400.0,
    run=play,
)
