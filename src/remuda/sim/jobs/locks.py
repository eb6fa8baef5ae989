"""One at a time among replicas, in memory. One for each replica: it can lose what it holds as a connection would."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.sim.jobs.tables import Tables


class MemoryLocks:
    """Implements ``remuda.ports.locks.Locks``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lost = asyncio.Event()

    def lose(self) -> None:
        """Lose every lock that this replica holds."""
        self._lost.set()
        self._lost = asyncio.Event()

    async def run_alone(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        async with self._tables.locks.setdefault(name, asyncio.Lock()):
            lost = self._lost
            try:
                async with asyncio.TaskGroup() as group:
                    working = group.create_task(_awaited(work), name=f"work under {name}")
                    watching = group.create_task(lost.wait(), name=f"watch of {name}")
                    await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
                    working.cancel()
                    watching.cancel()
            except BaseExceptionGroup as group_of_one:
                raise group_of_one.exceptions[0] from None


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
