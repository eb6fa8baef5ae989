"""Replicas die between stamp and mint, and the stamps that they left cannot be taken off with the claims."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.dispatch.attempt import Step
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import V2, V3, a_warm_fleet, demand_handed, ends_well
from remuda.sim.scenarios.pools.waiting import demand

if TYPE_CHECKING:
    from remuda.sim.scenarios.dispatch.stage import DispatchStage
    from remuda.sim.world import World

JOBS = 3
REPLICAS = 6
GRACE_S = 300.0
SWEEP_S = 60.0
SILENT_S = 60.0


async def play(world: World, options: Options) -> None:
    stage = await a_warm_fleet(world, options, hosts=5, vms=2, replicas=REPLICAS)
    await asyncio.sleep(GRACE_S)  # a young Pod is left alone in any case
    # The API server refuses what would mend it at once, and the stamped runners do not ask: only a later look can.
    stage.replicas.stamping.sticks = True
    stage.replicas.die_at(Step.STAMPED, times=JOBS)
    jobs = [stage.job(30.0) for _ in range(JOBS)]
    watch = world.group.create_task(_silence(world, stage), name="silence of stamped runners")
    await demand_handed(world, stage, jobs, V2, within_s=180.0)
    watch.cancel()
    await asyncio.wait({watch})
    stage.replicas.stamping.sticks = False
    world.trace.note("world", "stamped", "-", str(len(zombies(stage))), "without a claim")
    await demand(
        world,
        V3,
        "no runner is stamped without a claim",
        lambda: not zombies(stage),
        within_s=GRACE_S + SWEEP_S,
    )
    await ends_well(world, stage)


async def _silence(world: World, stage: DispatchStage) -> None:
    """Hold the agents whose runners carry a stamp and have no job: they do not ask again for a while."""
    while True:
        for name, disk in stage.disks.items():
            stamped = [uid for uid in disk.vms if stage.stamped.owners.get(uid)]
            if any(stage.guests.alive(uid) is None for uid in stamped):
                world.pause(name, SILENT_S)
        await asyncio.sleep(0.2)


def zombies(stage: DispatchStage) -> list[str]:
    """Return the live runners that carry an owner and have neither a claim nor a session."""
    held = {live.claim.pod_uid for live in stage.tables.claims.values()}
    held |= {session.pod_uid for session in stage.tables.sessions.values()}
    return sorted(
        runner.name
        for uid, runner in stage.seen.runners.items()
        if stage.stamped.owners.get(uid) and uid not in held and runner.is_alive
    )


STAMPED_WITHOUT_CLAIM = Scenario(
    name="stamped-without-claim",
    summary="Runners that a dead replica left stamped are of use again, or gone, after a grace and one sweep",
    description=(
        "In the field a deploy killed the server between stamp and mint: 28 Pods stayed stamped, looked busy, were "
        "never scaled down and held 448 GiB for two hours. Here a replica dies at that point three times in a row, and "
        "for a while no stamp can be taken off. The jobs must run all the same, and five minutes and a sweep later no "
        "runner carries an owner that nothing stands behind; one with a live claim is never touched."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "V2 no job is lost",
        "V3 no zombies",
        "V7 no leaks",
        "V8 quiet",
    ),
    breaks={"reaper": "nobody looks for stamped runners without a claim (V3)"},
    until_s=900.0,
    run=play,
)
