"""A process is a few named loops that run until it is told to stop; if one of them fails, all of them end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

_T = TypeVar("_T")


async def run_forever(
    loops: Mapping[str, Callable[[], Awaitable[None]]], stop: asyncio.Event
) -> None:
    """Run the loops until ``stop`` is set, then cancel them and wait for their ends."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_forever(name, loop), name=name) for name, loop in loops.items()]
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _forever(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    await loop()
    raise RuntimeError(f"The {name} loop ended by itself; a loop only ends by being cancelled")


async def ungrouped(work: Coroutine[Any, Any, _T]) -> _T:
    """
    Do work with a TaskGroup in it, and raise the first of what went wrong there, not a group of all of it.

    Before Python 3.13, a TaskGroup that is cancelled while its own tasks fail tells only of their errors, and who tries
    again after an error never hears that it is to end. Here the cancel comes first. The work is a task of its own: in
    the task that has the group, nobody can tell afterwards who cancelled it.
    """
    task = asyncio.current_task()
    assert task is not None, "TaskGroups are used in tasks"
    before = task.cancelling()
    try:
        return await asyncio.get_running_loop().create_task(work, name=task.get_name())
    except BaseExceptionGroup as group:
        if task.cancelling() > before:
            raise asyncio.CancelledError from None
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    fault: BaseException = group
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault
