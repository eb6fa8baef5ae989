"""What the demo does when nobody reads it any more, and when it is told to stop."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from typing import TYPE_CHECKING

from remuda.adapters.system import SystemClock
from remuda.cli.demo.command import Stopped
from remuda.cli.demo.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Callable


class Closed(io.StringIO):
    """A terminal that was closed, or a pipe whose reader went away."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


async def test_a_reader_that_goes_away_ends_nothing() -> None:
    screen = Screen(Closed(), SystemClock())
    screen.command("remuda down")
    screen.last_line("demo: ok", ok=True)


async def _told_to_stop(
    screen: Screen, *, ending: bool, heard: Callable[[], bool]
) -> tuple[bool, int | None]:
    """Send ourselves a signal; return whether the play was interrupted, and the exit code."""
    stopped = Stopped()
    stopped.listen(screen)
    stopped.ending = ending
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(60):
            while not heard():  # noqa: ASYNC110 - a signal sets no Event
                await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        return stopped.take(), stopped.code
    finally:
        stopped.deafen()
    return False, stopped.code


async def test_a_signal_interrupts_the_play_also_if_nobody_reads() -> None:
    screen = Screen(Closed(), SystemClock())
    told = _told_to_stop(screen, ending=False, heard=lambda: False)
    assert await told == (True, 129)


async def test_no_signal_interrupts_what_ends_the_fleet() -> None:
    out = io.StringIO()
    screen = Screen(out, SystemClock())
    told = _told_to_stop(screen, ending=True, heard=lambda: "is being ended" in out.getvalue())
    assert await told == (False, None)
