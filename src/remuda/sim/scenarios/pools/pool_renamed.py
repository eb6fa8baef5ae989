"""A pool is renamed (deleted, and made anew) while its runners are busy: twice, the second time in the foreground."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.runner import Phase
from remuda.ports.kube import Cascade
from remuda.sim.plan import CALM
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.pools.checks import Caps, GoesLast, NoKill, fencing
from remuda.sim.scenarios.pools.ends import LINGER_S, all_ends
from remuda.sim.scenarios.pools.seen import Seen
from remuda.sim.scenarios.pools.stage import PERSON, SPACE, Stage
from remuda.sim.scenarios.pools.waiting import demand

if TYPE_CHECKING:
    from remuda.sim.world import World

REPLICAS = 6
BUSY = 3
LONGEST_S = 600.0
GOES_WITHIN_S = 60.0


async def play(world: World, options: Options) -> None:
    stage, seen = Stage(world, options.broken), Seen()
    world.checkers.add(
        seen, NoKill(stage.dispatch), Caps(seen, lag_s=30.0), GoesLast(seen), fencing()
    )
    await stage.furnish()
    world.set_faults(options.faults or CALM)
    for number in range(1, 5):
        stage.host(f"mac-{number}", vms=4)
    stage.start()
    await stage.pool("mac-1", replicas=REPLICAS, labels=("macos",))
    await _rename(world, stage, seen, ("mac-1", "mac-2"), Cascade.BACKGROUND)
    await _rename(world, stage, seen, ("mac-2", "mac-3"), Cascade.FOREGROUND)
    world.calm()
    ends = all_ends(seen, stage.dispatch)
    await world.checkers.settle(ends, within_s=240.0, quiet_s=300.0, linger_s=LINGER_S)


async def _rename(
    world: World, stage: Stage, seen: Seen, names: tuple[str, str], cascade: Cascade
) -> None:
    old, new = names
    stage.dispatch.serves[old] = stage.dispatch.serves[new] = "macos"

    def are(phase: Phase, count: int) -> bool:
        return sum(runner.phase is phase for runner in seen.alive(old)) == count

    await demand(
        world, "V8 converged", f"{old} is warm", lambda: are(Phase.WARM, REPLICAS), within_s=300.0
    )
    for number in range(BUSY):
        stage.job("macos", LONGEST_S - 120.0 * number)
    await demand(
        world, "V1 handed out", "three are busy", lambda: are(Phase.BUSY, BUSY), within_s=60.0
    )
    await asyncio.sleep(30.0)
    world.trace.note(PERSON, "rename", f"runnerpools/{SPACE}/{old}", new, cascade.value)
    await stage.person.delete(RUNNER_POOL, old, namespace=SPACE, cascade=cascade)
    await stage.pool(new, replicas=REPLICAS, labels=("macos",))
    if stage.guards.drain_finalizer:
        await demand(
            world,
            "V4 finalizers drain",
            f"the idle runners of {old} are gone",
            lambda: len(seen.of(old)) == BUSY,
            within_s=GOES_WITHIN_S,
        )
    await demand(
        world,
        "V4 finalizers drain",
        f"{old} is gone",
        lambda: old not in seen.pools,
        within_s=LONGEST_S + GOES_WITHIN_S,
    )


POOL_RENAMED = Scenario(
    name="pool-renamed",
    summary="A pool is deleted and made again under another name while three of its runners are busy",
    description=(
        "A pool of six is renamed while three of its runners have jobs of up to ten minutes; then its successor is, "
        "with the old one deleted in the foreground. In the field the garbage collector deleted every runner, busy or "
        "not. Here the idle runners go, the busy ones finish, and the old object goes last."
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
    breaks={"drain_finalizer": "nothing holds a deleted pool while its runners are busy (V4)"},
    until_s=3600.0,
    run=play,
)
