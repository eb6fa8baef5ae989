"""What happens to whole processes, by chance: crashes, restarts, pauses, partitions and wrong clocks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.sim.ids import SeededIds
from remuda.sim.link import Direction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.sim.world import World

PAUSE_S = 60.0
SKEW_MAX_S = 300.0
PARTITION_MAX_S = 90.0
DOWN_MAX_S = 30.0

DISTURBANCES = ("crash", "crash", "stop", "pause", "partition", "partition", "skew")
"""Drawn from evenly: what stands twice happens twice as often."""


async def disturb(world: World, names: Sequence[str], *, every_s: float, until_s: float) -> None:
    """Do something to one of the named actors every so often, until virtual time ``until_s``."""
    chance = SeededIds(world.seed, "disturbances").random
    while True:
        wait_s = chance.uniform(0.5, 1.5) * every_s
        if world.loop.time() + wait_s >= until_s:
            await asyncio.sleep(max(0.0, until_s - world.loop.time()))
            return
        await asyncio.sleep(wait_s)
        name = chance.choice(names)
        match chance.choice(DISTURBANCES):
            case "crash":
                world.crash(name, restart_after_s=chance.uniform(1.0, DOWN_MAX_S))
            case "stop":
                world.stop(name, restart_after_s=chance.uniform(1.0, DOWN_MAX_S))
            case "pause":
                world.pause(name, PAUSE_S)
            case "partition":
                direction = chance.choice((*tuple(Direction), Direction.BOTH))
                world.partition(name, round(chance.uniform(5.0, PARTITION_MAX_S)), direction)
            case _:
                world.skew(name, round(chance.uniform(-SKEW_MAX_S, SKEW_MAX_S)))
