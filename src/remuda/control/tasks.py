"""A process is a few named loops that run until it is told to stop; if one of them fails, all of them end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


async def run_forever(
    loops: Mapping[str, Callable[[], Awaitable[None]]], stop: asyncio.Event
) -> None:
    """Run the loops until ``stop`` is set, then cancel them and wait for their ends."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_forever(name, loop), name=name) for name, loop in loops.items()]
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _forever(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    await loop()
    raise RuntimeError(f"The {name} loop ended by itself; a loop only ends by being cancelled")
