"""Everything at once: two pools, two replicas of the operator, jobs, rolls, cordons, renames, and all that can fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.kube.patches import MergePatch
from remuda.sim.disturb import disturb
from remuda.sim.plan import CALM, ROUGH, Faults
from remuda.sim.scenario import Options, Scenario
from remuda.sim.scenarios.pools.checks import (
    Caps,
    FailStatic,
    GoesLast,
    NoKill,
    OwnRetires,
    fencing,
)
from remuda.sim.scenarios.pools.ends import LINGER_S, all_ends
from remuda.sim.scenarios.pools.people import QUEUES, Person, dispatch_fails, jobs_arrive
from remuda.sim.scenarios.pools.seen import Seen
from remuda.sim.scenarios.pools.stage import CONTROLLERS, DISPATCH, Stage

if TYPE_CHECKING:
    from remuda.sim.world import World

HOSTS = 5
SILENCE = "silence"
LAG_S = 240.0
"""How old a leader's view may be: a frozen watch until the next list, and a pause on top."""
JOB_EVERY_S = 15.0
RECOVER_S = 60.0
DEAF_S = 90.0
CONVERGE_S = 1500.0
"""The jobs that piled up during the last outage, a roll of a pool one by one, a sweep after its grace, a cooldown."""
QUIET_S = 300.0


async def play(world: World, options: Options) -> None:
    stage, seen = Stage(world, options.broken - {SILENCE}), Seen()
    stage.dispatch.lies_when_down = SILENCE in options.broken
    static = FailStatic(seen)
    world.checkers.add(
        seen,
        NoKill(stage.dispatch),
        Caps(seen, lag_s=LAG_S),
        OwnRetires(seen, lag_s=LAG_S),
        GoesLast(seen),
        fencing(),
        static,
    )
    await stage.furnish()
    # Scripts enumerate and chance samples: a run that follows a script is calm but for that.
    world.set_faults(CALM if options.scripted else options.faults or ROUGH)
    for number in range(1, HOSTS + 1):
        stage.host(f"mac-{number}", vms=3, boot_s=15.0, pull_s=20.0)
    stage.start()
    person = Person(stage)
    for queue in QUEUES:
        await person.make(queue)
    await _rough_time(world, stage, person, static, options)
    world.calm()
    await world.checkers.settle(
        all_ends(seen, stage.dispatch), within_s=CONVERGE_S, quiet_s=QUIET_S, linger_s=LINGER_S
    )


async def _rough_time(
    world: World, stage: Stage, person: Person, static: FailStatic, options: Options
) -> None:
    chance = (
        jobs_arrive(stage, JOB_EVERY_S),
        person.meddle(),
        dispatch_fails(stage, static),
    )
    tasks = [
        world.group.create_task(part, name=name)
        for part, name in zip(chance, ("forge", "person", "outages"), strict=True)
    ]
    if options.scripted:
        await asyncio.sleep(options.until_s)
    else:
        names = (*CONTROLLERS, *CONTROLLERS, DISPATCH, *sorted(stage.disks))
        await disturb(world, names, every_s=40.0, until_s=options.until_s)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await person.uncordon()
    await _last_word(world, stage, person)


async def _last_word(world: World, stage: Stage, person: Person) -> None:
    """Roll both pools once more, when everybody is well but every watch is deaf: only a fresh list can tell."""
    world.calm()
    await asyncio.sleep(RECOVER_S)
    world.set_faults(Faults(drop=1.0))
    world.trace.note("world", "deaf", "-", "ok", "every watch loses its events, and the pools roll")
    for queue in QUEUES:
        patch = MergePatch(
            {"spec": {"image": "registry.test/runner:4", "rollout": {"paused": False}}}
        )
        await stage.change(person.pool(queue), patch, "the last word")
    await asyncio.sleep(DEAF_S)


POOLS_STORM = Scenario(
    name="pools-storm",
    summary="Two autoscaled pools through jobs, rolls, cordons, renames, outages and every fault there is",
    description=(
        "Two replicas of the operator keep two pools that share five hosts and follow the jobs. A person rolls them, "
        "rolls them back, pauses, cordons hosts, renames pools and deletes idle runners by hand; dispatch is away now "
        "and then. Meanwhile calls get lost, hang and conflict, watches drop and withhold events, and processes and "
        "hosts crash, stop, are cut off or read wrong clocks. Then all heal, the pools roll again while every watch "
        "is deaf, and the faults stop."
    ),
    invariants=(
        "S2 no kill",
        "S3 caps",
        "S4 warm through a roll",
        "S8 fencing",
        "S9 fail static",
        "V2 no job is lost",
        "V3 no orphans",
        "V4 finalizers drain",
        "V8 converged",
        "V8 quiet",
        "no bugs",
    ),
    breaks={
        "preconditions": "runners are deleted whatever became of them since they were looked at (S2)",
        "fencing": "a leader that lost its lease goes on acting (S8)",
        "expectations": "what was written and is not seen yet is written again (S3)",
        "roll_cap": "a roll retires everybody at once (S4)",
        SILENCE: "a dispatch that is away is taken for one with nothing to do (S9)",
        "drain_finalizer": "nothing holds a deleted pool while its runners are busy (V4)",
    },
    until_s=1800.0,
    run=play,
)
