"""Three tenants with small limits: first with runners to spare, then with fewer than all of them could use."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.model.job import Os, Size
from remuda.sim.forge.things import PostRates
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.dispatch.acts import (
    V1,
    V2,
    a_warm_fleet,
    began_s,
    demand_handed,
    ends_well,
    violated,
    waited_s,
)
from remuda.sim.scenarios.dispatch.stage import SETTINGS, VCPUS

if TYPE_CHECKING:
    from remuda.sim.forge.things import HubJob
    from remuda.sim.scenarios.dispatch.stage import DispatchStage
    from remuda.sim.world import World

FAIR = "S3 fair shares"
AT_ONCE = 3
"""How many jobs of one tenant may run at once."""
LIMITS = {Os.DARWIN: Size(AT_ONCE * VCPUS, 800 * 1024)}
JOB_S = 40.0
HANDED_S = 10.0
"""From queued to in a VM, with runners to spare: a message, and V1."""
LAG_S = 150.0
TURNS = 3
"""How many jobs of the greedy one may go before a job of another that is its owner's first."""


async def play(world: World, options: Options) -> None:
    settings = replace(SETTINGS, limits=LIMITS)
    stage = await a_warm_fleet(world, options, hosts=3, vms=5, replicas=10, settings=settings)
    await _to_spare(world, stage)
    await _too_few(world, stage)
    await _untold(world, stage)
    await ends_well(world, stage)


async def _to_spare(world: World, stage: DispatchStage) -> None:
    """One tenant wants far more than it may have; that costs the others nothing."""
    greedy = [stage.job(JOB_S) for _ in range(4 * AT_ONCE)]
    others: list[HubJob] = []
    for _ in range(6):
        for tenant in ("umbrella", "initech"):
            others.append(stage.job(JOB_S / 4, tenant=tenant))
            await asyncio.sleep(10.0)
    await demand_handed(world, stage, greedy + others, V2, within_s=600.0)
    slowest = max((waited_s(stage, job), job.id) for job in others)
    if slowest[0] > HANDED_S:
        what = f"{slowest[1]} waited for {slowest[0]:.0f} s behind a tenant at its limit"
        violated(world, V1, what)
    await asyncio.sleep(90.0)


async def _too_few(world: World, stage: DispatchStage) -> None:
    """All want more than there is: whoever has least is next, not who came first."""
    await stage.pool("few", replicas=2)
    await asyncio.sleep(60.0)
    greedy = [stage.job(JOB_S, pool="few") for _ in range(12)]
    await asyncio.sleep(5.0)
    others = [stage.job(JOB_S, pool="few", tenant=t) for t in ("umbrella", "initech") * 2]
    await demand_handed(world, stage, greedy + others, V2, within_s=1200.0)
    began = {job.id: began_s(stage, job) for job in greedy + others}
    for number, job in enumerate(others):
        queued_s = began[job.id] - waited_s(stage, job)
        before = sum(queued_s < began[g.id] < began[job.id] for g in greedy)
        world.trace.note("world", "fair", job.id, str(before), "jobs of the greedy one came before")
        if before > TURNS * (1 + number // 2):
            what = f"{job.id} of {job.organisation} had to wait for {before} jobs of acme"
            violated(world, FAIR, what)


async def _untold(world: World, stage: DispatchStage) -> None:
    """Let jobs begin unheard of, while the forge's list lags: runners that it calls busy use their room as well."""
    await asyncio.sleep(120.0)
    stage.forge.post.rates, stage.forge.faults.lag_s = PostRates(dropped=1.0), LAG_S
    jobs = [stage.job(2 * LAG_S) for _ in range(AT_ONCE)]
    await demand_handed(world, stage, jobs, V2, within_s=60.0)
    for _ in range(AT_ONCE):
        stage.job(JOB_S)
    await asyncio.sleep(2 * LAG_S)
    stage.forge.post.rates, stage.forge.faults.lag_s = PostRates(), 0.0


SMALL_LIMITS = Scenario(
    name="small-limits",
    summary="Tenants never use more than their limit, at the limit cost others nothing, and share what is scarce",
    description=(
        "Each of three tenants may run three jobs at once. One queues twelve; the others' jobs are handed over as if "
        "it were not there, and no more than three of it run. Then the three share a pool of two runners: the first "
        "queues twelve again, the others two each a little later, and theirs must not wait until the twelve are done. "
        "At last the forge keeps silent and its list lags: who works uses room, whether we were told of it or not."
    ),
    invariants=(
        "S1 single use",
        "S2 no kill",
        "S3 budgets",
        "S3 fair shares",
        "V1 handed out in time",
        "V2 no job is lost",
        "V7 no leaks",
        "V8 quiet",
    ),
    breaks={
        "budgets": "tenants have no limit (S3)",
        "fairness": "the oldest job goes first, whosever it is (S3)",
    },
    until_s=900.0,
    run=play,
)
