"""News of work, in memory. One for each replica: it can be cut off and reconnected as a connection would be."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.sim.jobs.tables import Tables


class MemoryWakeups:
    """Implements ``remuda.ports.wakeups.Wakeups``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._cut = False
        self._listening: list[asyncio.Queue[str | None]] = []

    def cut(self) -> None:
        """Lose the connection: what is told now is heard by nobody here."""
        self._cut = True

    def reconnect(self) -> None:
        self._cut = False
        for heard in self._listening:
            heard.put_nowait(None)

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[str | None]]:
        heard: asyncio.Queue[str | None] = asyncio.Queue()

        def hear(pool: str) -> None:
            if not self._cut:
                heard.put_nowait(pool)

        heard.put_nowait(None)
        self._tables.listeners.append(hear)
        self._listening.append(heard)
        try:
            yield _read(heard)
        finally:
            self._listening.remove(heard)
            self._tables.listeners.remove(hear)


async def _read(heard: asyncio.Queue[str | None]) -> AsyncIterator[str | None]:
    while True:
        yield await heard.get()
