"""The forge registers no runner for a minute, after Pods were stamped for its jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import (
    V2,
    V3,
    a_warm_fleet,
    demand_handed,
    ends_well,
    violated,
)

if TYPE_CHECKING:
    from remuda.sim.scenarios.dispatch.stage import DispatchStage
    from remuda.sim.world import World

OUTAGE_S = 60.0
UNSTAMPED_S = 5.0
HANDED_S = 150.0
"""From the first failure: the outage, and the longest that a job which failed often is held back."""
JOBS = 3


async def play(world: World, options: Options) -> None:
    stage = await a_warm_fleet(world, options)
    # Half of the failures are of the other kind: registered, but the answer is lost.
    stage.forge.faults.mint_fails, stage.forge.faults.mint_unanswered = 0.5, 1.0
    world.trace.note("forge", "outage", "-", "begins", "no mint succeeds")
    watch = world.group.create_task(_watch(world, stage), name="watch of stamps")
    jobs = [stage.job(60.0, tenant=tenant) for tenant in ("acme", "umbrella", "acme")[:JOBS]]
    await asyncio.sleep(OUTAGE_S)
    stage.forge.faults.mint_fails = stage.forge.faults.mint_unanswered = 0.0
    world.trace.note("forge", "outage", "-", "ends")
    await demand_handed(world, stage, jobs, V2, within_s=HANDED_S - OUTAGE_S)
    watch.cancel()
    await asyncio.wait({watch})
    await ends_well(world, stage)


async def _watch(world: World, stage: DispatchStage) -> None:
    """See that no Pod carries an owner for longer than an attempt takes without a claim behind it."""
    since: dict[str, float] = {}
    while True:
        now = world.loop.time()
        claimed = {live.claim.pod_uid for live in stage.tables.claims.values()}
        zombies = [
            uid for uid, owner in stage.stamped.owners.items() if owner and uid not in claimed
        ]
        since = {uid: since.get(uid, now) for uid in zombies}
        for uid, first in since.items():
            if now - first > UNSTAMPED_S and uid in stage.seen.runners:
                name = stage.seen.runners[uid].name
                violated(world, V3, f"{name} is stamped without a claim for {now - first:.0f} s")
        await asyncio.sleep(1.0)


MINT_FAILS_AFTER_STAMP = Scenario(
    name="mint-fails-after-stamp",
    summary="A Pod that was stamped for a job whose runner the forge did not register is a free runner again at once",
    description=(
        "In the field a mint that failed released the claim and left the stamp behind: the runner counted as busy for "
        "ever. Here the forge fails for a minute, in half of the cases after it registered the runner. Every time the "
        "stamp must be off within five seconds of the claim, the job back in its place, and nothing left at the forge."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "V2 no job is lost",
        "V3 no zombies",
        "V7 no leaks",
        "V8 quiet",
    ),
    breaks={"unstamp": "the stamp of a claim that was given back stays on the Pod (V3)"},
    until_s=600.0,
    run=play,
)
