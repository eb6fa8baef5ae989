"""The simulator's clock: a fixed epoch plus virtual time, and each actor's own error in reading it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class SimClock:
    """
    One actor's clock. Implements ``remuda.ports.clock.Clock``.

    ``skew_s`` is by how much its wall clock is ahead; ``drift`` how many seconds it gains per second. Both bend wall
    time only: durations are measured on the loop's own scale, as a machine's monotonic clock would.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, skew_s: float = 0.0, drift: float = 0.0
    ) -> None:
        self._loop = loop
        self.skew_s = skew_s
        self.drift = drift

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time() * (1.0 + self.drift) + self.skew_s)

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        # As asyncio.sleep, without cancelling a timer that has fired: most of what a simulated process does is sleep.
        loop = self._loop
        woken: asyncio.Future[None] = asyncio.Future(loop=loop)
        due = loop.time() + seconds if seconds > 0 else loop.time()
        timer = loop.call_at(due, _wake, woken)
        try:
            await woken
        except asyncio.CancelledError:
            timer.cancel()
            raise


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
