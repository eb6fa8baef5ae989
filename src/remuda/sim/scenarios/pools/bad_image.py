"""An image that never boots reaches a busy pool: each job that ends asks for a new runner, which could be a bad one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import Provisioning, Rollout
from remuda.model.runner import Phase
from remuda.sim.ids import SeededIds
from remuda.sim.plan import CALM
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.pools.checks import Caps, NoKill, OwnRetires, fencing
from remuda.sim.scenarios.pools.ends import LINGER_S, all_ends
from remuda.sim.scenarios.pools.seen import Seen
from remuda.sim.scenarios.pools.stage import Stage, image
from remuda.sim.scenarios.pools.waiting import demand

if TYPE_CHECKING:
    from remuda.sim.checkers import Observed
    from remuda.sim.world import World

POOL = "mac"
REPLICAS = 10
HOSTS = 7
BOOT_S = 20.0
JOB_EVERY_S = 20.0
JOB_S = (40.0, 120.0)
BAD = "registry.test/runner:bad"
DEADLINE_S = 300
BAD_S = 1500.0
"""How long nobody mends it: long enough for every runner to end several times over."""
PATIENCE_S = 3 * BOOT_S
"""A runner that ended is replaced, and its replacement warm, within this: a boot, and a wait for a start slot."""
RADIUS = "S5 blast radius"


class BlastRadius:
    """While the image is bad, at most the cap of runners have it, and all others work, but for the time of a boot."""

    invariant = RADIUS

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._born: dict[str, float] = {}
        self._short_since: float | None = None

    def look(self, change: Observed) -> str | None:
        pool = self._seen.pools.get(POOL)
        if (made := self._seen.after) is not None:
            self._born.setdefault(made.uid, change.at_s)
        if pool is None or pool.spec.image != BAD:
            self._short_since = None
            return None
        if change.plural not in {"pods", "runnerpools"}:
            return None
        cap = self._seen.cap(POOL)
        bad = sum(not self._seen.is_stale(POOL, r) for r in self._seen.alive(POOL))
        if bad > cap:
            return f"{bad} runners have the bad image, and the cap is {cap}"
        if self._good(change.at_s) >= self._seen.replicas(POOL) - cap:
            self._short_since = None
            return None
        since = self._short_since = self._short_since or change.at_s
        late_s = change.at_s - since
        good = self._good(change.at_s)
        return f"{good} runners work, for {late_s:.0f} s" if late_s > PATIENCE_S else None

    def _good(self, now: float) -> int:
        """Count those of the good image that serve, or will soon."""
        good = (r for r in self._seen.alive(POOL) if self._seen.is_stale(POOL, r) and not r.mark)
        return sum(
            r.phase is not Phase.STARTING or now - self._born[r.uid] <= PATIENCE_S for r in good
        )


async def play(world: World, options: Options) -> None:
    stage, seen = Stage(world, options.broken), Seen()
    world.checkers.add(
        seen,
        NoKill(stage.dispatch),
        Caps(seen, lag_s=30.0),
        OwnRetires(seen, lag_s=0.0),
        BlastRadius(seen),
        fencing(),
    )
    await stage.furnish()
    world.set_faults(options.faults or CALM)
    for number in range(1, HOSTS + 1):
        # On some hosts a bad start hangs, on others it fails aloud.
        fails_after_s = 15.0 if number % 2 else None
        disk = stage.host(f"mac-{number}", vms=2, boot_s=BOOT_S, fails_after_s=fails_after_s)
        disk.bad_images.add(BAD)
    stage.start()
    await stage.pool(
        POOL,
        replicas=REPLICAS,
        rollout=Rollout(max_concurrent_percent=20, progress_deadline_seconds=DEADLINE_S),
        provisioning=Provisioning(max_concurrent=4, start_timeout_seconds=240),
    )
    await _story(world, stage, seen)
    world.calm()
    ends = all_ends(seen, stage.dispatch)
    await world.checkers.settle(ends, within_s=300.0, quiet_s=300.0, linger_s=LINGER_S)


async def _story(world: World, stage: Stage, seen: Seen) -> None:
    def is_whole() -> bool:
        stale = any(seen.is_stale(POOL, runner) for runner in seen.alive(POOL))
        return POOL in seen.pools and seen.unavailable(POOL) == 0 and not stale

    def is_stuck() -> bool:
        conditions = {c.type: c for c in seen.pools[POOL].status.conditions}
        return conditions["Degraded"].reason == "RollStuck"

    await demand(world, "V8 converged", "the pool is warm", is_whole, within_s=300.0)
    forge = world.group.create_task(_jobs_arrive(stage), name="forge")
    await asyncio.sleep(120.0)
    await stage.change(POOL, MergePatch(image(BAD)), "an image that no guest boots from")
    within_s = DEADLINE_S + 120.0
    await demand(world, RADIUS, "the pool says that its roll is stuck", is_stuck, within_s=within_s)
    await asyncio.sleep(BAD_S)
    if (waiting := len(stage.dispatch.queue)) > REPLICAS // 2:
        what = f"{waiting} jobs wait for runners that the bad image took"
        world.verdict.violated(RADIUS, what, "-", world.loop.time())
    patch = MergePatch(image("registry.test/runner:2"))
    await stage.change(POOL, patch, "an image that boots")
    await asyncio.sleep(300.0)
    forge.cancel()
    await asyncio.wait({forge})
    await demand(world, "V8 converged", "the mended image is everywhere", is_whole, within_s=900.0)


async def _jobs_arrive(stage: Stage) -> None:
    """Let jobs arrive, until cancelled."""
    chance = SeededIds(stage.world.seed, "forge").random
    while True:
        await asyncio.sleep(chance.uniform(0.2, 1.8) * JOB_EVERY_S)
        stage.job(POOL, round(chance.uniform(*JOB_S)))


BAD_IMAGE = Scenario(
    name="bad-image",
    summary="Ten busy runners get an image that never boots; jobs go on, and so do eight of the ten",
    description=(
        "A pool of ten at 20 % works on a steady stream of jobs when its image becomes one that never boots. The roll "
        "gets stuck at its cap, as it should. But runners are single-use: every job that ends asks for a new one, and "
        "if that had the bad image the pool would be empty a job's length later. Here at most two runners try it, and "
        "the others are made from the last template that worked. Then the image is mended and the roll goes through."
    ),
    invariants=(
        "S2 no kill",
        "S3 caps",
        "S4 warm through a roll",
        RADIUS,
        "S8 fencing",
        "V2 no job is lost",
        "V3 no orphans",
        "V8 converged",
        "V8 quiet",
    ),
    breaks={"fallback": "each job that ends turns a good runner into a bad one (S5)"},
    until_s=3600.0,
    run=play,
)
