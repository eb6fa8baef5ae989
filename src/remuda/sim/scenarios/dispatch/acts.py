"""What the stories of this package have in common: a fleet that is warm, jobs that arrive, and how long they waited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.model.runner import Phase
from remuda.sim.clock import EPOCH
from remuda.sim.plan import CALM
from remuda.sim.scenarios.dispatch import in_time, returned
from remuda.sim.scenarios.dispatch.ends import LINGER_S, all_ends
from remuda.sim.scenarios.dispatch.stage import SETTINGS, DispatchStage
from remuda.sim.scenarios.pools.waiting import demand

if TYPE_CHECKING:
    from remuda.dispatch.settings import DispatchSettings
    from remuda.sim.forge.things import HubJob
    from remuda.sim.scenario import Options
    from remuda.sim.world import World

POOL = "mac"
V1 = in_time.V1
V2 = returned.V2
V3 = "V3 no zombies"


async def a_warm_fleet(
    world: World,
    options: Options,
    *,
    hosts: int = 2,
    vms: int = 3,
    replicas: int = 4,
    settings: DispatchSettings = SETTINGS,
) -> DispatchStage:
    """Put up a fleet and wait until its pool is warm."""
    stage = DispatchStage(world, options.broken, settings)
    await stage.furnish()
    world.set_faults(options.faults or CALM)
    for number in range(1, hosts + 1):
        stage.host(f"mac-{number}", vms=vms, boot_s=15.0)
    stage.start()
    await stage.pool(POOL, replicas=replicas)
    await demand(
        world, "V8 converged", "the pool is warm", lambda: is_warm(stage, replicas), within_s=300.0
    )
    return stage


def is_warm(stage: DispatchStage, replicas: int) -> bool:
    warm = sum(r.phase is Phase.WARM and r.is_alive for r in stage.seen.of(POOL))
    return warm >= replicas


async def ends_well(world: World, stage: DispatchStage, *, within_s: float = 900.0) -> None:
    """End the faults, and demand everything that must be so then."""
    world.calm()
    await world.checkers.settle(
        all_ends(stage), within_s=within_s, quiet_s=300.0, linger_s=LINGER_S
    )


def began_s(stage: DispatchStage, job: HubJob) -> float:
    """Return when a job's config was in a VM, or a sibling's was that got it; infinity, if that never was."""
    begun = (job.started_at - EPOCH).total_seconds() if job.started_at else float("inf")
    return min(stage.handed_at.get(job.id, float("inf")), begun)


def waited_s(stage: DispatchStage, job: HubJob) -> float:
    """Return how long a job waited until its config was in a VM; for ever, if it never was."""
    return began_s(stage, job) - (job.queued_at - EPOCH).total_seconds()


async def demand_handed(
    world: World, stage: DispatchStage, jobs: list[HubJob], invariant: str, *, within_s: float
) -> bool:
    """Demand that each of these jobs was handed to a VM so soon after it was queued."""
    what = f"{len(jobs)} jobs are handed over"
    return await demand(
        world,
        invariant,
        what,
        lambda: all(waited_s(stage, job) < float("inf") for job in jobs),
        within_s=within_s,
    )


def violated(world: World, invariant: str, what: str) -> None:
    world.verdict.violated(invariant, what, "-", world.loop.time())


async def jobs_arrive(
    stage: DispatchStage, count: int, every_s: float, lasts_s: float
) -> list[HubJob]:
    """Let jobs arrive, one after the other."""
    jobs: list[HubJob] = []
    for _ in range(count):
        jobs.append(stage.job(lasts_s))
        await asyncio.sleep(every_s)
    return jobs
