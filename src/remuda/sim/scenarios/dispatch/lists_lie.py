"""The API server does not say which Pods there are, or says it wrongly, while jobs run and claims stand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.sim.dispatch.mistakes import Lists
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import V2, a_warm_fleet, demand_handed, ends_well, violated
from remuda.sim.scenarios.dispatch.stage import REPLICAS

if TYPE_CHECKING:
    from remuda.sim.checkers import Observed
    from remuda.sim.forge.things import HubJob
    from remuda.sim.scenarios.dispatch.stage import DispatchStage
    from remuda.sim.world import World

S9 = "S9 fail static"
LONG_S = 1200.0
LASTS_S = 180.0
"""How long the lists are wrong in each way: many turns of each worker, and new lists of each view."""
HANDED_S = 60.0


async def play(world: World, options: Options) -> None:
    stage = await a_warm_fleet(world, options, hosts=3, vms=4, replicas=8)
    jobs = [stage.job(LONG_S) for _ in range(3)]
    await demand_handed(world, stage, jobs, V2, within_s=HANDED_S)
    await asyncio.sleep(30.0)
    world.checkers.add(NothingReaped(stage))
    watch = world.group.create_task(_watch(world, stage), name="watch of claims")
    for lists in (Lists.FAIL, Lists.EMPTY, Lists.HALF):
        await _lie(world, stage, lists)
    watch.cancel()
    await asyncio.wait({watch})
    await ends_well(world, stage, within_s=LONG_S + 600.0)


async def _lie(world: World, stage: DispatchStage, lists: Lists) -> None:
    """Let lists be wrong for a while, and true again. A replica is restarted meanwhile: it has seen nothing else."""
    world.trace.note("world", "lists", "pods", lists.value, "what replicas are told of all Pods")
    stage.replicas.stamping.lists = lists
    job: HubJob = stage.job(60.0)
    if lists is not Lists.FAIL:  # one that cannot read at all does not take polls
        await asyncio.sleep(LASTS_S / 3)
        world.crash(REPLICAS[0], why="it comes up while the lists are wrong")
    await asyncio.sleep(LASTS_S)
    stage.replicas.stamping.lists = Lists.TRUE
    await demand_handed(world, stage, [job], V2, within_s=1.0)
    await asyncio.sleep(30.0)


async def _watch(world: World, stage: DispatchStage) -> None:
    """See that whoever works holds the claim that it was given its job for."""
    held: dict[str, str] = {}
    while True:
        working = {run.vm: run.pod for run in stage.guests.working()}
        standing = {live.claim.pod_uid for live in stage.tables.claims.values()}
        for uid in [uid for uid in held if uid in working and uid not in standing]:
            violated(world, S9, f"{held.pop(uid)} works, and its claim was released")
        held |= {uid: pod for uid, pod in working.items() if uid in standing}
        await asyncio.sleep(0.5)


class NothingReaped:
    """No replica deletes a Pod or takes a stamp off one, whatever the lists say."""

    invariant = S9

    def __init__(self, stage: DispatchStage) -> None:
        self._stage = stage

    def look(self, change: Observed) -> str | None:
        if change.plural != "pods" or change.writer not in REPLICAS:
            return None
        goes = change.event.change == "DELETED"
        if goes or "deletionTimestamp" in change.event.object["metadata"]:
            return f"{change.writer} deletes {change.event.key} while lists are wrong"
        return None


LISTS_LIE = Scenario(
    name="lists-lie",
    summary="While Pods cannot be listed, or lists are empty or half, no claim is released and nobody reaped",
    description=(
        "Jobs of twenty minutes run while the API server first does not tell the replicas of dispatch which Pods there "
        "are, then says that there are none, then leaves out every second one; a replica starts anew meanwhile. "
        "Who believed that would end the claims of runners at work, and queue their jobs again. Nothing is released, "
        "nobody is deleted, and jobs that arrive meanwhile are handed over."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "S9 fail static",
        "V2 no job is lost",
        "V3 no zombies",
        "V7 no leaks",
        "V8 quiet",
    ),
    breaks={"second_look": "who is not in a list of Pods is taken for gone (S9)"},
    until_s=900.0,
    run=play,
)
