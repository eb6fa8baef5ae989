"""Two things at once, of which the first to end counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    value: T | None = None
    error: Exception | None = None


async def first_of(work: Callable[[], Awaitable[A]], guard: Callable[[], Awaitable[B]]) -> A | B:
    """Run both until one ends, cancel the other, and return what came. If both ended, the work counts."""
    async with asyncio.TaskGroup() as group:
        working = group.create_task(_caught(work))
        guarding = group.create_task(_caught(guard))
        await asyncio.wait({working, guarding}, return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        guarding.cancel()
    outcome: _Outcome[A] | _Outcome[B]
    outcome = guarding.result() if working.cancelled() else working.result()
    if outcome.error is not None:
        raise outcome.error
    return outcome.value  # type: ignore[return-value]  # without an error there is a value, perhaps None


async def _caught(work: Callable[[], Awaitable[T]]) -> _Outcome[T]:
    try:
        return _Outcome(value=await work())
    except Exception as error:  # noqa: BLE001 - it is raised again by whoever waits for both
        return _Outcome(error=error)
