"""How a command that runs until it is told to stop ends well."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Coroutine

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def until_told_to_stop(work: Coroutine[None, None, None]) -> bool:
    """Do something until it is over or a signal asks for the end; True: one did, and the work was cancelled."""
    task = asyncio.current_task()
    assert task is not None, "this runs in a task"
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        await work
    except asyncio.CancelledError:
        task.uncancel()  # asked to stop: that is how such a command ends well
        return True
    return False
