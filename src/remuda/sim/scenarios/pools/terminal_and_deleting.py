"""Runners that have ended and are being deleted, held by a finalizer of somebody else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.kube.core import POD
from remuda.kube.names import DRAIN
from remuda.kube.patches import MergePatch
from remuda.model.runner import Phase
from remuda.sim.plan import CALM
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.pools.checks import Caps, NoKill, fencing
from remuda.sim.scenarios.pools.ends import LINGER_S, all_ends
from remuda.sim.scenarios.pools.seen import Seen
from remuda.sim.scenarios.pools.stage import CONTROLLERS, SPACE, Stage
from remuda.sim.scenarios.pools.waiting import demand

if TYPE_CHECKING:
    from remuda.model.runner import Runner
    from remuda.sim.world import World

POOL = "mac"
REPLICAS = 6
HELD = 3
HOLD = "sim.remuda.dev/hold"
HELD_S = 1800.0
DELETES = "V4 finalizers drain"


async def play(world: World, options: Options) -> None:
    stage, seen = Stage(world, options.broken), Seen()
    world.checkers.add(seen, NoKill(stage.dispatch), Caps(seen, lag_s=30.0), fencing())
    await stage.furnish()
    world.set_faults(options.faults or CALM)
    for number in range(1, 4):
        stage.host(f"mac-{number}", vms=4)
    stage.start()
    await stage.pool(POOL, replicas=REPLICAS)
    await _story(world, stage, seen)
    world.calm()
    await world.checkers.settle(
        all_ends(seen, stage.dispatch), within_s=240.0, quiet_s=300.0, linger_s=LINGER_S
    )


async def _story(world: World, stage: Stage, seen: Seen) -> None:
    def is_whole() -> bool:
        return sum(r.phase is Phase.WARM and r.is_alive for r in seen.of(POOL)) == REPLICAS

    await demand(world, "V8 converged", "the pool is warm", is_whole, within_s=300.0)
    held = sorted(seen.alive(POOL), key=lambda runner: runner.name)[:HELD]
    for runner in held:
        await _hold(stage, runner)
        drain = MergePatch({"metadata": {"labels": {DRAIN: "true"}}})
        await stage.person.patch(POD, runner.name, drain, namespace=SPACE)

    def are_going() -> bool:
        return all(
            (now := seen.runners.get(runner.uid)) is not None
            and now.deleting_since is not None
            and now.phase is Phase.ENDED
            for runner in held
        )

    await demand(world, DELETES, "three have ended and are being deleted", are_going, within_s=60.0)
    await demand(world, DELETES, "they are replaced meanwhile", is_whole, within_s=120.0)
    await asyncio.sleep(60.0)
    await _watch_writes(world, stage, held)
    for runner in held:
        await _release(stage, runner)
    await demand(
        world, DELETES, "they are gone", lambda: len(seen.of(POOL)) == REPLICAS, within_s=60.0
    )


async def _watch_writes(world: World, stage: Stage, held: list[Runner]) -> None:
    """See that nobody writes about runners that are going, however long they take, and that they are counted."""
    before = world.write_calls(CONTROLLERS)
    await asyncio.sleep(HELD_S)
    if writes := world.write_calls(CONTROLLERS) - before:
        what = f"{writes} writes in {HELD_S:g} s about runners that wait for somebody else"
        world.verdict.violated(DELETES, what, "-", world.loop.time())
    counted = stage.gauge("remuda_pool_runners", pool=POOL, state="terminating")
    aged = stage.gauge("remuda_pool_oldest_terminating_age_seconds", pool=POOL)
    if counted != len(held) or aged < HELD_S:
        what = f"{counted:g} runners are counted as terminating, the oldest for {aged:.0f} s"
        world.verdict.violated(DELETES, what, "-", world.loop.time())


async def _hold(stage: Stage, runner: Runner) -> None:
    pod = await stage.person.get(POD, runner.name, namespace=SPACE)
    finalizers = [*pod.metadata.finalizers, HOLD]
    patch = MergePatch({"metadata": {"finalizers": [*finalizers]}})
    await stage.person.patch(POD, runner.name, patch, namespace=SPACE)


async def _release(stage: Stage, runner: Runner) -> None:
    pod = await stage.person.get(POD, runner.name, namespace=SPACE)
    left = [one for one in pod.metadata.finalizers if one != HOLD]
    patch = MergePatch({"metadata": {"finalizers": [*left]}})
    await stage.person.patch(POD, runner.name, patch, namespace=SPACE)


TERMINAL_AND_DELETING = Scenario(
    name="terminal-and-deleting",
    summary="Runners that have ended and are being deleted are replaced, counted, aged, and left alone",
    description=(
        "Three of six runners end while a finalizer of somebody else holds their Pods for half an hour. In the field "
        "such Pods were skipped and forgotten. Here their deletion is looked at first: they are replaced at once, "
        "counted as terminating with their age, nobody writes about them again, and they go when they are let go."
    ),
    invariants=(
        "S2 no kill",
        "S3 caps",
        "S8 fencing",
        "V3 no orphans",
        "V4 finalizers drain",
        "V8 converged",
        "V8 quiet",
    ),
    breaks={
        "deletion_first": "a runner that ended is reaped again and again while it is going (V4)"
    },
    until_s=3600.0,
    run=play,
)
