"""Wait for a condition with a deadline. The only way a test waits: never by sleeping and hoping."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from remuda.adapters.system import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
POLL_S = 0.02
POLL_S_MAX = 0.1
"""Looking takes CPU from whoever is waited for: a fleet that boots was asked for its Pods fifty times a second."""
DEADLINE_S = 20.0
"""Ample: a real controller on a busy two-core machine. A met condition ends the wait at once."""


async def eventually(
    probe: Callable[[], Awaitable[T]],
    accept: Callable[[T], bool] = bool,
    *,
    within_s: float = DEADLINE_S,
) -> T:
    """Probe until the answer is accepted, and return it. Fails with the last answer after the deadline."""
    clock = SystemClock()
    began = clock.monotonic()
    while True:
        answer = await probe()
        if accept(answer):
            return answer
        waited = clock.monotonic() - began
        assert waited < within_s, f"not in {within_s} s; the last answer was {answer!r}"
        # The longer it takes, the less a tenth more of it matters.
        await clock.sleep(min(max(POLL_S, waited / 10), POLL_S_MAX))


async def within(awaitable: Awaitable[T], seconds: float = DEADLINE_S) -> T:
    async with asyncio.timeout(seconds):
        return await awaitable
