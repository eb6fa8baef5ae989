"""One host is Ready and starts nothing; being the emptiest, it attracts every replacement."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.kube.core import POD
from remuda.kube.runner_pool import Provisioning
from remuda.model.runner import Phase
from remuda.sim.plan import CALM
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.pools.checks import Caps, NoKill, fencing
from remuda.sim.scenarios.pools.ends import LINGER_S, all_ends
from remuda.sim.scenarios.pools.seen import Seen
from remuda.sim.scenarios.pools.stage import SPACE, Stage
from remuda.sim.scenarios.pools.waiting import demand

if TYPE_CHECKING:
    from remuda.sim.fleet.disk import HostDisk
    from remuda.sim.world import World

START_TIMEOUT_S = 120
STARTING_MAX = 4
BOOT_S = 20.0
TURNOVER_S = 1500.0
FAILED_STARTS_MAX = 3
PROBES = 2
"""After ten minutes and twenty more, and each costs one start."""
WAIT_MAX_S = 60.0
"""How long a job may wait: the pools have runners to spare."""
POOLS = {"mac-a": 6, "mac-b": 4}


async def play(world: World, options: Options) -> None:
    stage, seen = Stage(world, options.broken), Seen()
    world.checkers.add(seen, NoKill(stage.dispatch), Caps(seen, lag_s=30.0), fencing())
    await stage.furnish()
    world.set_faults(options.faults or CALM)
    poison = stage.host("mac-bad", vms=12, boot_s=BOOT_S)
    for number in range(1, 5):
        stage.host(f"mac-{number}", vms=3, boot_s=BOOT_S)
    stage.start()
    await asyncio.sleep(5.0)
    for name, replicas in POOLS.items():
        await stage.pool(
            name,
            replicas=replicas,
            provisioning=Provisioning(
                max_concurrent=STARTING_MAX, start_timeout_seconds=START_TIMEOUT_S
            ),
        )
    await _turnover(world, stage, seen, poison)
    world.calm()
    ends = all_ends(seen, stage.dispatch)
    await world.checkers.settle(ends, within_s=400.0, quiet_s=300.0, linger_s=LINGER_S)


async def _turnover(world: World, stage: Stage, seen: Seen, poison: HostDisk) -> None:
    """Let jobs turn the runners over: every replacement could end up on the host that starts nothing."""

    def are_warm() -> bool:
        return all(
            sum(runner.phase is Phase.WARM for runner in seen.alive(name)) == replicas
            for name, replicas in POOLS.items()
        )

    await demand(world, "V8 converged", "both pools are warm", are_warm, within_s=300.0)
    poison.is_poisoned = True
    world.trace.note("mac-bad", "poison", "nodes/mac-bad", "ok", "it starts nothing any more")
    healthy = poison.starts
    for runner in sorted(seen.runners.values(), key=lambda r: r.name):
        if runner.node == "mac-bad":
            await stage.person.delete(POD, runner.name, namespace=SPACE)  # its VMs crashed
    # One start timeout to find out, one for those that were on their way there, and the boots elsewhere.
    within_s = 2 * START_TIMEOUT_S + 4 * BOOT_S
    await demand(world, "V6 no starving", "both are warm again", are_warm, within_s=within_s)
    ends = world.loop.time() + TURNOVER_S
    while world.loop.time() < ends:
        for name in POOLS:
            stage.job(name, 60.0)
        await asyncio.sleep(60.0)
    most = FAILED_STARTS_MAX + STARTING_MAX - 1 + PROBES
    if (wasted := poison.starts - healthy) > most:
        what = f"{wasted} starts were wasted on mac-bad in a while; {most} were to be expected"
        world.verdict.violated("V5 poison host", what, "-", world.loop.time())
    waited = max((job.started_at or ends) - job.queued_at for job in stage.dispatch.jobs.values())
    if waited > WAIT_MAX_S:
        what = f"a job waited for {waited:.0f} s"
        world.verdict.violated("V5 poison host", what, "-", world.loop.time())


POISON_NODE = Scenario(
    name="poison-node",
    summary="One host is Ready, starts nothing, and is the emptiest",
    description=(
        "Two pools share a fleet whose largest host loses its VMs, starts none any more, and stays Ready. In the field "
        "such a host drew every replacement and held the budget of starts for hours. Here it is avoided after three "
        "failed starts, costs a probe now and then, and jobs turn the runners over without waiting for it."
    ),
    invariants=(
        "S2 no kill",
        "S3 caps",
        "S8 fencing",
        "V3 no orphans",
        "V5 poison host",
        "V6 no starving",
        "V8 converged",
        "V8 quiet",
    ),
    breaks={"avoidance": "hosts on which nothing starts are used like any other (V5)"},
    until_s=3600.0,
    run=play,
)
