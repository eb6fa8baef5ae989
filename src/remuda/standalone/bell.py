"""How a controller sleeps: until something rings, or until its own next moment. Rings are not counted or carried."""

from __future__ import annotations

import asyncio


class Bell:
    """One sleeper, many ringers. A ring while nobody sleeps is heard by the next sleep."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def heard(self, within_s: float | None = None) -> None:
        """Sleep until a ring, at most ``within_s`` seconds of the loop's time (None: for as long as it takes)."""
        try:
            async with asyncio.timeout(within_s):
                await self._rung.wait()
        except TimeoutError:
            return
        finally:
            self._rung.clear()
