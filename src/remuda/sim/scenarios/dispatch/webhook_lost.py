"""The forge's messages are lost, all of them: nothing but looking finds the jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.sim.forge.things import PostRates
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import V2, a_warm_fleet, demand_handed, ends_well

if TYPE_CHECKING:
    from remuda.sim.world import World

FOUND_S = 60.0
AGAIN_S = 60.0
"""
What each further time costs that a job is lost on its way: V2 bounds each by itself, not their sum.

A claim of a replica that died is found at the next look (10 s) and given up after 30 s more: an attempt that lives may
take 20 s, and must not lose its claim. A forge that does not answer costs 10 s, and then holds of 15 s and 30 s.
"""
JOBS = 3


async def play(world: World, options: Options) -> None:
    stage = await a_warm_fleet(world, options)
    stage.forge.post.rates = PostRates(dropped=1.0)
    world.trace.note("forge", "silence", "-", "begins", "no message of it arrives")
    for _ in range(JOBS):
        job = stage.job(45.0)
        again = max(0, len(options.scripted) - 1)
        await demand_handed(world, stage, [job], V2, within_s=FOUND_S + AGAIN_S * again)
    await asyncio.sleep(120.0)  # their ends are not told either
    stage.forge.post.rates = PostRates()
    await ends_well(world, stage)


WEBHOOK_LOST = Scenario(
    name="webhook-lost",
    summary="Jobs that no message announced are found within a minute, and so are their ends",
    description=(
        "In the field webhooks were not delivered during an outage of the database, and jobs stayed queued for days. "
        "Here no message arrives at all: each job must be in a VM a minute after it was queued, because dispatch asks "
        "the forge what is queued; and what runs and ends unsaid is found out as well."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "S6 hints are hints",
        "V2 no job is lost",
        "V3 no zombies",
        "V7 no leaks",
        "V8 quiet",
    ),
    breaks={"sweep": "nobody asks the forge for jobs that no message announced (V2)"},
    until_s=900.0,
    run=play,
)
