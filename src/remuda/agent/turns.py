"""
How many images are pulled at once: few, for they share one line and one disk, but never held up by a pull that hangs.

A pull without progress gives its turn away and goes on; what it does not use, others may. A pull that a Pod waits for
goes before one that is only staged, and staged ones never take the last turn.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from remuda.ports.clock import Clock


@dataclass(slots=True, eq=False)
class Turn:
    """One who pulls, or waits to."""

    urgent: Callable[[], bool]
    """Whether a Pod waits for it. May change while it waits."""
    moved_at: float = 0.0
    begun: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Turns:
    """Who pulls now, and who is next."""

    clock: Clock
    most: int = 2
    """Two: one pull seldom fills the line, as it waits for the registry or unpacks; more only make each one slower."""
    stalled_s: float = 30.0
    """Without progress for so long, a pull does not count."""
    _pulling: list[Turn] = field(default_factory=list)
    _waiting: list[Turn] = field(default_factory=list)

    @asynccontextmanager
    async def taken(self, turn: Turn) -> AsyncIterator[None]:
        """Wait for a turn, and have it while the block lasts."""
        self._waiting.append(turn)
        try:
            await self._begin(turn)
            yield
        finally:
            for line in (self._waiting, self._pulling):
                if turn in line:
                    line.remove(turn)
            self.look()

    def moved(self, turn: Turn) -> None:
        """Take note that bytes have come."""
        turn.moved_at = self.clock.monotonic()

    def look(self) -> None:
        """Let those begin who may. To be called when somebody has become urgent."""
        while (following := self._following()) is not None:
            self._waiting.remove(following)
            self._pulling.append(following)
            self.moved(following)
            following.begun.set()

    async def _begin(self, turn: Turn) -> None:
        self.look()
        while not turn.begun.is_set():
            try:
                async with asyncio.timeout(self._next_stall_s()):
                    await turn.begun.wait()
            except TimeoutError:
                self.look()

    def _following(self) -> Turn | None:
        free = self.most - len(self._moving())
        if free <= 0:
            return None
        urgent = next((turn for turn in self._waiting if turn.urgent()), None)
        if urgent is not None:
            return urgent
        spare = free > 1 or self.most == 1
        return self._waiting[0] if self._waiting and spare else None

    def _moving(self) -> list[Turn]:
        now = self.clock.monotonic()
        return [turn for turn in self._pulling if now - turn.moved_at < self.stalled_s]

    def _next_stall_s(self) -> float:
        """Return after how long a turn may have come free although nobody ended: not at once, lest it spins."""
        now = self.clock.monotonic()
        left = (turn.moved_at + self.stalled_s - now for turn in self._moving())
        return max(min(left, default=self.stalled_s), 0.1)
