"""Time. Nothing but ``adapters.system`` (and the simulator's twin of it) reads a real clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for what is measured, and sleep."""

    def now(self) -> datetime:
        """Return the wall time, in UTC. It may jump; never measure a duration with it."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only grow, on the running loop's own scale."""
        ...

    async def sleep(self, seconds: float) -> None: ...
