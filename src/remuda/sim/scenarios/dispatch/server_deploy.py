"""Dispatch is deployed in every order while jobs arrive and run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import (
    V1,
    a_warm_fleet,
    ends_well,
    violated,
    waited_s,
)
from remuda.sim.scenarios.dispatch.stage import REPLICAS

if TYPE_CHECKING:
    from remuda.sim.scenarios.dispatch.stage import DispatchStage
    from remuda.sim.world import World

JOB_S = 20.0
EVERY_S = 5.0
ORDERS = (
    *(REPLICAS[:1], REPLICAS[1:], REPLICAS, REPLICAS[::-1]),
    *(REPLICAS[:1] * 2, REPLICAS[1:] * 2),
)
"""Who is restarted, one after the other."""
MINT_S = 3.0
HANDED_S = 20.0
"""From queued to handed over: a mint, and one more if the first replica was told to stop before."""


async def play(world: World, options: Options) -> None:
    stage = await a_warm_fleet(world, options, hosts=3, vms=4, replicas=10)
    stage.forge.faults.mint_s = MINT_S  # long enough for a deploy to come in between
    jobs = world.group.create_task(_jobs(stage), name="jobs")
    await asyncio.sleep(30.0)
    for order in ORDERS:
        for name in order:
            await _restart(world, stage, name, kill="goodbye" in options.broken)
            await asyncio.sleep(10.0)
        await asyncio.sleep(30.0)
    jobs.cancel()
    await asyncio.wait({jobs})
    await asyncio.sleep(HANDED_S)
    slowest = max((waited_s(stage, job), job.id) for job in stage.forge.jobs.values())
    if slowest[0] > HANDED_S:
        violated(world, V1, f"{slowest[1]} waited for {slowest[0]:.0f} s, with runners to spare")
    longest_s = stage.in_time.longest_s
    longest = f"work and a warm runner were both there for at most {longest_s:.1f} s"
    world.trace.note("world", "measured", "handed-out", f"{longest_s:.1f}s", longest)
    await ends_well(world, stage)


async def _restart(world: World, stage: DispatchStage, name: str, *, kill: bool) -> None:
    """Restart a replica, at the worst moment: in the middle of a mint, if one comes soon."""
    for _ in range(300):
        if stage.forge.minting[name]:
            break
        await asyncio.sleep(0.1)
    if kill:
        world.crash(name, why="the deploy does not wait")
    else:
        stage.replicas.stop(name)


async def _jobs(stage: DispatchStage) -> None:
    while True:
        stage.job(JOB_S)
        await asyncio.sleep(EVERY_S)


SERVER_DEPLOY = Scenario(
    name="server-deploy",
    summary="Replicas of dispatch are restarted in every order while jobs run: none is cut short, lost or kept waiting",
    description=(
        "Jobs arrive every five seconds while each replica is told to stop, alone, after the other and twice in a row. "
        "A replica that goes takes no more polls, finishes what is past the stamp and gives the rest back. So no job "
        "is cut short or handed over twice, and work and a warm runner are never both there for more than a moment."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "S8 fencing",
        "V1 handed out in time",
        "V2 no job is lost",
        "V3 no zombies",
        "V7 no leaks",
        "V8 quiet",
    ),
    breaks={
        "goodbye": "a replica that is told to stop dies at once (V1)",
        "wakeups": "nobody hears of new work, nor looks for it at each beat (V1)",
    },
    until_s=900.0,
    run=play,
)
