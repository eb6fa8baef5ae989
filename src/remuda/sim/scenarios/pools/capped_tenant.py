"""Jobs of a tenant at its limit wait for a pool that has no runner; only a waiting runner makes dispatch look again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.kube.runner_pool import Autoscaling
from remuda.sim.plan import CALM
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.pools.checks import Caps, NoKill, fencing
from remuda.sim.scenarios.pools.ends import LINGER_S, all_ends
from remuda.sim.scenarios.pools.seen import Seen
from remuda.sim.scenarios.pools.stage import Stage
from remuda.sim.scenarios.pools.waiting import demand

if TYPE_CHECKING:
    from remuda.sim.world import World

POOL = "mac"
TENANT = "capped"
JOBS = 5
HIDDEN = "hidden_demand"


async def play(world: World, options: Options) -> None:
    stage, seen = Stage(world, options.broken - {HIDDEN}), Seen()
    stage.dispatch.hides_withheld = HIDDEN in options.broken
    world.checkers.add(seen, NoKill(stage.dispatch), Caps(seen, lag_s=30.0), fencing())
    await stage.furnish()
    world.set_faults(options.faults or CALM)
    for number in range(1, 4):
        stage.host(f"mac-{number}", vms=2)
    stage.start()
    scaling = Autoscaling(enabled=True, min_warm=0, max_replicas=4, scale_down_cooldown_seconds=120)
    await stage.pool(POOL, replicas=0, autoscaling=scaling)
    await asyncio.sleep(30.0)
    await _story(world, stage, seen)
    world.calm()
    ends = all_ends(seen, stage.dispatch)
    await world.checkers.settle(ends, within_s=600.0, quiet_s=300.0, linger_s=LINGER_S)


async def _story(world: World, stage: Stage, seen: Seen) -> None:
    stage.dispatch.limits[TENANT] = 0
    for _ in range(JOBS):
        stage.job(POOL, 60.0, owner=TENANT)
    await asyncio.sleep(300.0)
    if (alive := len(seen.alive(POOL))) > 1:
        what = f"{JOBS} jobs that may not run got {alive} runners"
        world.verdict.violated("V6 no starving", what, "-", world.loop.time())
    world.trace.note("person", "limit", TENANT, "1", "the tenant may run one job at a time")
    stage.dispatch.limits[TENANT] = 1
    dispatch = stage.dispatch
    # One after the other, on a runner each: a job, and a boot in between where none is warm.
    await demand(
        world,
        "V6 no starving",
        "the tenant's jobs are done",
        lambda: not dispatch.unfinished(),
        within_s=JOBS * 150.0,
    )
    await demand(
        world,
        "V8 converged",
        "the pool is at zero again",
        lambda: seen.replicas(POOL) == 0,
        within_s=600.0,
    )


CAPPED_TENANT = Scenario(
    name="capped-tenant-livelock",
    summary="Demand that is withheld counts as one runner, so that a pool at zero does not starve for ever",
    description=(
        "A pool that scales to zero gets five jobs of a tenant that is at its limit. Whether they may run is looked at "
        "only when a runner waits; in the field such demand was hidden, so no runner ever came and the jobs starved "
        "after the limit was raised. Here withheld demand counts as exactly one: a runner waits, and the jobs run."
    ),
    invariants=(
        "S2 no kill",
        "S3 caps",
        "S8 fencing",
        "V2 no job is lost",
        "V3 no orphans",
        "V6 no starving",
        "V8 converged",
        "V8 quiet",
    ),
    breaks={HIDDEN: "dispatch does not tell of withheld demand, as in the field (V6)"},
    until_s=1800.0,
    run=play,
)
