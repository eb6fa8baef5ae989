"""The incident that this system exists for: a roll during which every host has to pull the new image."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import Provisioning, Rollout
from remuda.sim.plan import CALM
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.pools.checks import Caps, NoKill, OwnRetires, WarmThroughRoll, fencing
from remuda.sim.scenarios.pools.ends import LINGER_S, all_ends
from remuda.sim.scenarios.pools.seen import Seen
from remuda.sim.scenarios.pools.stage import DISPATCH, Stage, image
from remuda.sim.scenarios.pools.waiting import demand

if TYPE_CHECKING:
    from remuda.sim.world import World

POOL = "mac"
REPLICAS = 20
HOSTS = 10
PULL_S = 120.0
BOOT_S = 20.0
ROLL_S = 3600.0
"""Ten hosts, two at a time, a pull and a boot each, and the time that it takes to see it."""
DEADLINE_S = 300
BAD = "registry.test/runner:bad"
QUIET_S = 300.0


async def play(world: World, options: Options) -> None:
    stage, seen = Stage(world, options.broken), Seen()
    through_roll = WarmThroughRoll(seen)
    world.checkers.add(
        seen,
        NoKill(stage.dispatch),
        Caps(seen, lag_s=30.0),
        through_roll,
        OwnRetires(seen, lag_s=0.0),
        fencing(),
    )
    await stage.furnish()
    world.set_faults(options.faults or CALM)
    for number in range(1, HOSTS + 1):
        disk = stage.host(f"mac-{number:02}", pull_s=PULL_S, boot_s=BOOT_S, vms=2)
        disk.fetched_at["registry.test/runner:1"] = 0.0
        disk.bad_images.add(BAD)
    stage.start()
    await stage.pool(
        POOL,
        replicas=REPLICAS,
        rollout=Rollout(max_concurrent_percent=10, progress_deadline_seconds=DEADLINE_S),
        provisioning=Provisioning(max_concurrent=REPLICAS, start_timeout_seconds=240),
    )
    await _story(world, stage, seen, through_roll)
    world.calm()
    ends = all_ends(seen, stage.dispatch)
    await world.checkers.settle(ends, within_s=300.0, quiet_s=QUIET_S, linger_s=LINGER_S)


async def _story(world: World, stage: Stage, seen: Seen, through_roll: WarmThroughRoll) -> None:
    def is_whole() -> bool:
        stale = any(seen.is_stale(POOL, runner) for runner in seen.alive(POOL))
        return POOL in seen.pools and seen.unavailable(POOL) == 0 and not stale

    await demand(world, "V8 converged", "20 runners are warm", is_whole, within_s=600.0)
    patch = MergePatch(image("registry.test/runner:2"))
    await stage.change(POOL, patch, "a new image, on no host yet")
    await demand(world, "V8 converged", "the roll is through", is_whole, within_s=ROLL_S)

    await _roll_back(world, stage, seen)
    await _bad_image(world, stage, seen)
    patch = MergePatch(image("registry.test/runner:2"))
    await stage.change(POOL, patch, "the new image is bad: back to the last good one")
    await demand(world, "V8 converged", "the pool is whole again", is_whole, within_s=600.0)

    through_roll.is_on = False
    for number in range(5):
        stage.job(POOL, 120.0 + 60.0 * number)
    await asyncio.sleep(30.0)
    patch = MergePatch(image("registry.test/runner:1"))
    await stage.change(POOL, patch, "another roll, while jobs run")
    for number in range(5):
        await asyncio.sleep(60.0)
        stage.job(POOL, 90.0 + 30.0 * number)
    await demand(world, "V8 converged", "the second roll is through", is_whole, within_s=ROLL_S)


async def _roll_back(world: World, stage: Stage, seen: Seen) -> None:
    """
    Go back while runners are marked and dispatch is too slow to have sent them home: the marks must go.

    Not at once: a runner may have been told to leave just before, and counts as leaving for a while.
    """

    def marked() -> int:
        return sum(runner.mark is not None for runner in seen.alive(POOL))

    world.pause(DISPATCH, 60.0)
    patch = MergePatch(image("registry.test/runner:3"))
    await stage.change(POOL, patch, "a roll that somebody thinks better of")
    await demand(world, "V8 converged", "two are marked", lambda: marked() > 1, within_s=30.0)
    await stage.change(POOL, MergePatch(image("registry.test/runner:2")), "back again")
    await demand(world, "V8 converged", "the marks are gone", lambda: not marked(), within_s=60.0)
    await asyncio.sleep(60.0)


async def _bad_image(world: World, stage: Stage, seen: Seen) -> None:
    """Roll to an image that never starts: the roll gets stuck, says so, and takes nobody more than its cap."""

    def is_stuck() -> bool:
        conditions = {c.type: c for c in seen.pools[POOL].status.conditions}
        degraded = conditions.get("Degraded")
        return degraded is not None and degraded.status == "True"

    await stage.change(POOL, MergePatch(image(BAD)), "an image that no guest boots from")
    within_s = DEADLINE_S + 120.0
    await demand(world, "S5 blast radius", "the pool says Degraded", is_stuck, within_s=within_s)
    await asyncio.sleep(400.0)
    if (lost := seen.unavailable(POOL)) > seen.cap(POOL):
        what = f"the bad image took {lost} runners"
        world.verdict.violated("S5 blast radius", what, "-", world.loop.time())


ROLL_PULL_WAVE = Scenario(
    name="roll-pull-wave",
    summary="20 runners are rolled, two at a time, to an image that every host must pull first",
    description=(
        "A pool of 20 runners at 10 % on ten hosts gets a new image that takes each host two minutes to pull. In the "
        "field the drain was paced by a clock and the warm pool collapsed; here the next runner is retired only when a "
        "replacement is warm. Then an image that never boots: the roll gets stuck, says so and retires nobody else; "
        "going back heals it. A roll that is taken back leaves no marks. Then another roll while jobs run."
    ),
    invariants=(
        "S2 no kill",
        "S3 caps",
        "S4 warm through a roll",
        "S5 blast radius",
        "S8 fencing",
        "V3 no orphans",
        "V8 converged",
        "V8 quiet",
    ),
    breaks={
        "roll_cap": "a roll retires everybody at once, as in the field (S4)",
        "void_marks": "a mark outlives the roll that it was made for (V8)",
    },
    until_s=12000.0,
    run=play,
)
