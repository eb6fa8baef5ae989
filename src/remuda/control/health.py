"""
Whether the loops of a process still turn. ``/healthz`` asks here; a constant "ok" would only say that HTTP works.

A loop registers with the longest time that it may be silent, and beats from inside its own turn: a beat that a second
task gave would say nothing about the first. A loop that waits for good reason beats while it waits (``pause``).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from remuda.ports.clock import Clock

_BEATS_PER_LIMIT = 3
"""How often a pause beats within the limit: one late turn of the event loop is no alarm."""


@dataclass(slots=True)
class _Loop:
    limit_s: float
    beat_at: float


class Health:
    """The beats of a process's loops. ``beat`` is cheap: call it every turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loops: dict[str, _Loop] = {}

    def register(self, name: str, limit_s: float) -> None:
        """Expect the loop ``name`` to beat at least this often, from now on."""
        assert limit_s > 0, f"the {name} loop cannot beat all the time"
        self._loops[name] = _Loop(limit_s, self._clock.monotonic())

    def unregister(self, name: str) -> None:
        """Expect nothing of it any more: it ended on purpose."""
        self._loops.pop(name, None)

    @contextmanager
    def watched(self, name: str, limit_s: float) -> Iterator[None]:
        """Register a loop for as long as the block lasts."""
        self.register(name, limit_s)
        try:
            yield
        finally:
            self.unregister(name)

    def beat(self, name: str) -> None:
        """Say that the loop took its turn."""
        assert name in self._loops, f"the {name} loop beats but was never registered"
        self._loops[name].beat_at = self._clock.monotonic()

    async def pause(self, name: str, seconds: float) -> None:
        """Sleep in the loop ``name``, beating on the way."""
        ends_at = self._clock.monotonic() + seconds
        self.beat(name)
        while (left_s := ends_at - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left_s, self._loops[name].limit_s / _BEATS_PER_LIMIT))
            self.beat(name)

    def problems(self, now: float) -> tuple[str, ...]:
        """Name each loop that has been silent for too long; ``now`` is on the monotonic clock."""
        return tuple(
            f"the {name} loop has not run for {now - loop.beat_at:.0f} s"
            f" (it should at least every {loop.limit_s:g} s)"
            for name, loop in sorted(self._loops.items())
            if now - loop.beat_at > loop.limit_s
        )


class BeatingClock:
    """A clock for a loop that sleeps in every turn and knows nothing of health: its sleep is where its heart beats."""

    def __init__(self, clock: Clock, health: Health, name: str) -> None:
        self._clock, self._health, self._name = clock, health, name

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._health.beat(self._name)
        await self._clock.sleep(seconds)
