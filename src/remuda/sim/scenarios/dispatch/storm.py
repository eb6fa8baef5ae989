"""Everything at once: jobs, cancellations, rolls, a forge that fails, lost messages, and all that can break."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL, Rollout
from remuda.model.job import Os, Size
from remuda.ports.forge import Scope
from remuda.sim.disturb import disturb
from remuda.sim.forge.things import HubFaults, PostRates
from remuda.sim.ids import SeededIds
from remuda.sim.plan import CALM, ROUGH
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import POOL, ends_well
from remuda.sim.scenarios.dispatch.stage import REPLICAS, SETTINGS, VCPUS, DispatchStage
from remuda.sim.scenarios.pools.stage import CONTROLLERS, SPACE

if TYPE_CHECKING:
    from remuda.sim.world import World

HOSTS = 4
POOLS = (POOL, "big")
JOB_EVERY_S = 8.0
JOB_S = (15.0, 180.0)
TENANTS = ("acme", "umbrella", "initech")
POST = PostRates(dropped=0.15, failed=0.1, delayed=0.1, duplicated=0.15, latency_s=3.0)
LIMITS = {Os.DARWIN: Size(4 * VCPUS, 800 * 1024)}
"""Four jobs of a tenant at once: that is a third of the runners, so limits bind."""
HEALED_S = 420.0
"""When nothing of the faults may be felt any more: a tenant that was refused is passed over for 300 s."""
CONVERGE_S = 2400.0
"""The jobs that piled up, jobs held back for minutes, graces of minutes, and a roll."""


async def play(world: World, options: Options) -> None:
    stage = DispatchStage(world, options.broken, replace(SETTINGS, limits=LIMITS))
    await stage.furnish()
    world.set_faults(CALM if options.scripted else options.faults or ROUGH)
    for number in range(1, HOSTS + 1):
        stage.host(f"mac-{number}", vms=4, boot_s=12.0)
    stage.start(CONTROLLERS)
    for pool in POOLS:
        rollout = Rollout(max_concurrent_percent=50, progress_deadline_seconds=300)
        await stage.pool(pool, replicas=6, rollout=rollout)
    stage.forge.post.rates = POST
    await _rough_time(world, stage, options)
    stage.forge.faults, stage.forge.post.rates = HubFaults(), PostRates()
    world.calm()
    await asyncio.sleep(HEALED_S)
    for pool in POOLS:
        for tenant in TENANTS:
            stage.job(JOB_S[0], pool=pool, tenant=tenant)  # from here on V1 is looked at
    await ends_well(world, stage, within_s=CONVERGE_S)


async def _rough_time(world: World, stage: DispatchStage, options: Options) -> None:
    parts = {"jobs": _jobs(stage), "person": _meddle(stage), "outages": _outages(stage)}
    tasks = [world.group.create_task(part, name=name) for name, part in parts.items()]
    if options.scripted:
        await asyncio.sleep(options.until_s)
    else:
        names = (*REPLICAS, *REPLICAS, *REPLICAS, *CONTROLLERS, *sorted(stage.disks))
        await disturb(world, names, every_s=30.0, until_s=options.until_s)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _jobs(stage: DispatchStage) -> None:
    chance = SeededIds(stage.world.seed, "arrivals").random
    while True:
        await asyncio.sleep(chance.uniform(0.2, 1.8) * JOB_EVERY_S)
        stage.job(
            round(chance.uniform(*JOB_S)),
            pool=chance.choice(POOLS),
            tenant=chance.choice(TENANTS),
            repository=f"app-{chance.randrange(3)}",
        )


async def _meddle(stage: DispatchStage) -> None:
    """Cancel jobs, and roll the pools."""
    chance, world = SeededIds(stage.world.seed, "person").random, stage.world
    while True:
        await asyncio.sleep(chance.uniform(10.0, 60.0))
        waiting = [job for job in stage.forge.jobs.values() if not job.is_over]
        if waiting and chance.random() < 0.8:  # noqa: PLR2004 - mostly
            job = chance.choice(waiting)
            world.trace.note("person", "cancel", job.id, job.state.value)
            stage.forge.cancel(job)
            continue
        pool, image = chance.choice(POOLS), f"registry.test/runner:{chance.randrange(1, 4)}"
        world.trace.note("person", "roll", pool, image)
        patch = MergePatch({"spec": {"image": image}})
        await stage.person.patch(RUNNER_POOL, pool, patch, namespace=SPACE)


async def _outages(stage: DispatchStage) -> None:
    """Let the forge fail in one way after the other."""
    chance, world = SeededIds(stage.world.seed, "outages").random, stage.world
    while True:
        await asyncio.sleep(chance.uniform(10.0, 60.0))
        kind = chance.choice(("down", "mints", "unanswered", "mute", "refuses", "lags"))
        world.trace.note("forge", "outage", kind, "begins")
        stage.forge.faults = _faults(kind, chance.choice(TENANTS))
        await asyncio.sleep(chance.uniform(10.0, 90.0))
        world.trace.note("forge", "outage", kind, "ends")
        stage.forge.faults = HubFaults()


def _faults(kind: str, tenant: str) -> HubFaults:
    match kind:
        case "down":
            return HubFaults(is_down=True)
        case "mints":
            return HubFaults(mint_fails=0.5)
        case "unanswered":
            return HubFaults(mint_unanswered=0.5)
        case "mute":
            return HubFaults(never_registers=0.5)
        case "lags":
            return HubFaults(lag_s=20.0)
        case _:
            return HubFaults(refuses={tenant: Scope.TENANT})


DISPATCH_STORM = Scenario(
    name="dispatch-storm",
    summary="Two pools and three tenants through lost messages, failing forges, dying replicas and every fault",
    description=(
        "Two replicas of dispatch and two of the operator serve jobs of three tenants on two pools. Messages are lost, "
        "late and doubled; the forge is down, refuses, registers without an answer, hears nothing of its runners and "
        "answers with old news; jobs are cancelled and pools rolled. Calls get lost, hang and conflict, watches drop "
        "events, and replicas, operators and hosts crash, stop, pause, are cut off or read wrong clocks. Then the "
        "faults stop, and everything must be as if nothing had happened."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "S3 budgets",
        "S6 hints are hints",
        "S8 fencing",
        "V1 handed out in time",
        "V2 no job is lost",
        "V3 no zombies",
        "V3 no orphans",
        "V7 no leaks",
        "V8 converged",
        "V8 quiet",
        "no bugs",
    ),
    breaks={
        "recovery": "nobody mends what was left half done (S6)",
        "stamp": "a job is handed to a runner whose stamp nobody wrote (S8)",
    },
    until_s=900.0,
    run=play,
)
