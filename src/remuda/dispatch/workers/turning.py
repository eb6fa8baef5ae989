"""
How a worker turns: alone among the replicas, again and again, whatever one turn ran into.

A worker's memory lasts one reign. Whoever gets the lock next begins with none, so a worker that was paused or replaced
acts on nothing that it saw before: that costs time, never correctness.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import structlog

from remuda.control.backoff import spread
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from remuda.dispatch.workers.parts import RecoveryParts

log = structlog.get_logger(__name__)

T = TypeVar("T")

AT_ONCE: Final = 8
"""How many things one worker mends at a time: one that hangs must not hold up the others."""
_SILENT_MAX_S: Final = 300.0
"""How long a worker may be silent: a full turn in which every call takes until its deadline is shorter."""
_LOCK_LOST_S: Final = 1.0


class Worker(Protocol):
    """One worry. ``tick`` looks once, mends what it may, and says in how many seconds to look again."""

    async def tick(self) -> float: ...


def alone(
    parts: RecoveryParts, name: str, make: Callable[[RecoveryParts], Worker]
) -> Callable[[], Awaitable[None]]:
    """Return a loop that runs a worker for as long as this replica has its lock, and waits for the lock otherwise."""

    async def reign() -> None:
        await turn(parts, name, make(parts))

    async def loop() -> None:
        while True:
            await parts.locks.run_alone(name, reign)
            await parts.clock.sleep(_LOCK_LOST_S)

    return loop


async def turn(parts: RecoveryParts, name: str, worker: Worker) -> None:
    """Let a worker turn until cancelled."""
    tick_s = parts.settings.recovery.tick_s
    with parts.health.watched(name, max(_SILENT_MAX_S, tick_s * 4)):
        while True:
            wait_s = await _one_turn(parts, name, worker)
            await parts.health.pause(name, wait_s)


async def _one_turn(parts: RecoveryParts, name: str, worker: Worker) -> float:
    try:
        return await worker.tick()
    except RemudaError as error:
        log.warning("recovery turn failed", worker=name, error=str(error))
    except Exception:  # the loop's edge: jobs must be handed out although this is broken
        log.exception("recovery turn broke", worker=name)
    parts.metrics.worker_failed(name)
    return spread(parts.settings.recovery.tick_s, parts.ids.fraction())


async def each(
    parts: RecoveryParts, name: str, items: Iterable[T], mend: Callable[[T], Awaitable[None]]
) -> None:
    """Mend things, a few at a time. One that fails is left for the next turn and stops no other."""
    waiting = iter(tuple(items))

    async def work() -> None:
        for item in waiting:
            try:
                await mend(item)
            except RemudaError as error:
                parts.metrics.worker_failed(name)
                log.info("left for the next turn", worker=name, error=str(error))
            except (
                Exception
            ):  # a fault of ours with this one: it would end the turn of all, each time
                parts.metrics.worker_failed(name)
                log.exception("broke on one thing", worker=name)

    async with asyncio.TaskGroup() as group:
        for number in range(AT_ONCE):
            group.create_task(work(), name=f"{name} {number}")
