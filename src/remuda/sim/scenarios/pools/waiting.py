"""Waiting in a story for something that must come: it is a violation if it does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.sim.world import World


async def demand(
    world: World, invariant: str, what: str, is_so: Callable[[], bool], *, within_s: float
) -> bool:
    """Wait until it is so. Returns whether it was, in time."""
    ends = world.loop.time() + within_s
    while not is_so():
        if world.loop.time() >= ends:
            world.verdict.violated(
                invariant, f"{what}: not within {within_s:g} s", "-", world.loop.time()
            )
            return False
        await asyncio.sleep(1.0)
    world.trace.note("world", "reached", "-", "ok", what)
    return True
