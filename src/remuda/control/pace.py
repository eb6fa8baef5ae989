"""How long a runner's side waits before it asks dispatch again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.control.backoff import Backoff, spread

if TYPE_CHECKING:
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids


@dataclass(slots=True)
class Pace:
    """How long to wait before the next poll, so that neither a fault of dispatch nor one of ours becomes a storm."""

    clock: Clock
    ids: Ids
    backoff: Backoff = field(default_factory=Backoff)
    at_least_s: float = 1.0
    """How far apart polls are that are answered at once: a poll is held open if there is nothing."""
    _failures: int = 0

    async def after_failure(self, retry_after_s: float | None = None) -> float:
        """Wait: longer with each failure in a row, and at least as long as we were told to. Returns how long."""
        self._failures += 1
        wait_s = self.backoff.wait_s(self._failures, self.ids.fraction())
        if retry_after_s is not None:
            wait_s = max(wait_s, spread(retry_after_s, self.ids.fraction()))
        await self.clock.sleep(wait_s)
        return wait_s

    def worked(self) -> None:
        """Count failures from anew."""
        self._failures = 0

    async def after_nothing(self, asked_at: float) -> None:
        """Wait for what is left of the least distance; nothing, after a poll that was held open."""
        self.worked()
        left_s = asked_at + self.at_least_s - self.clock.monotonic()
        if left_s > 0:
            await self.clock.sleep(spread(left_s, self.ids.fraction()))
