"""
Signs of life of work that lasts: one line that changes where a terminal watches, plain lines where none does.

A line that is drawn over itself is for eyes only. In a pipe, in CI, on a terminal that cannot move its cursor, and
where NO_COLOR asks for plain text, what is done is told in lines that stay, and only if it takes its time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from remuda.cli.tables import cut, duration
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from typing import TextIO

    from remuda.ports.clock import Clock

_CLEAR: Final = "\r\x1b[K"
_PATIENCE_S: Final = 5.0
"""Where no terminal watches, a wait is worth a line only once it is longer than this."""
_TOLD_FROM_S: Final = 2.0
"""How long it took so far is told from then on."""
_BAR: Final = 20
_SPIN: Final = "|/-\\"
_TICK_S: Final = 0.2

Share = tuple[int, int]
"""How much is done, of how much."""


def is_watched(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Say whether a line may be drawn over itself there."""
    if not stream.isatty() or env.get("TERM", "") in {"", "dumb"}:
        return False
    return not env.get("NO_COLOR") and env.get("CI", "") in {"", "0", "false"}


def bar(done: int, total: int) -> str:
    """Draw how much is done."""
    filled = _BAR * done // total if total else _BAR
    return f"[{'#' * filled}{'.' * (_BAR - filled)}]"


class Screen:
    """Writes to ``stream``, which is no place for a job's own output."""

    def __init__(
        self, stream: TextIO, *, quiet: bool = False, env: Mapping[str, str] = os.environ
    ) -> None:
        self._stream = stream
        self._watched = is_watched(stream, env)
        self._quiet = quiet
        self._shown = ""
        self._turns = 0

    def progress(self, text: str, waited_s: float, share: Share | None = None) -> None:
        """Show how far it is, in place of what was shown before; with ``share`` as a bar too."""
        if self._quiet:
            return
        if self._watched:
            self._draw(text, waited_s, share)
        elif text != self._shown and waited_s >= _PATIENCE_S:
            self._shown = text
            self._write(f"remuda: {text}\n")

    def _draw(self, text: str, waited_s: float, share: Share | None) -> None:
        sign = bar(*share) if share is not None else _SPIN[self._turns % len(_SPIN)]
        self._turns += 1
        took = f" ({duration(waited_s)})" if waited_s >= _TOLD_FROM_S else ""
        room = max(shutil.get_terminal_size().columns - 1, 1)
        head = f"remuda: {sign} "
        # How long it takes is seen also if there is no room for all that it waits for.
        self._write(
            _CLEAR + cut(head + cut(text, max(room - len(head) - len(took), 1)) + took, room)
        )
        self._shown = text

    def clear(self) -> None:
        """Make room for output."""
        if self._watched and self._shown:
            self._write(_CLEAR)
        self._shown = ""

    def say(self, text: str) -> None:
        """Say something that stays."""
        self.clear()
        if not self._quiet:
            self._write(f"remuda: {text}\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._quiet = True  # nobody listens any more: the work goes on all the same


@asynccontextmanager
async def shown(
    screen: Screen, clock: Clock, seen: Callable[[], tuple[str, Share | None]]
) -> AsyncIterator[None]:
    """Show how far some work is for as long as it lasts: ``seen`` is asked again and again, and must be quick."""

    async def show() -> None:
        began = clock.monotonic()
        while True:
            with suppress(OSError, RemudaError):  # whoever does the work says what is wrong
                text, share = seen()
                screen.progress(text, clock.monotonic() - began, share)
            await clock.sleep(_TICK_S)

    try:
        async with beside(show()):
            yield
    finally:
        screen.clear()


@asynccontextmanager
async def beside(work: Coroutine[None, None, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Do something for as long as something else lasts. What goes wrong with either is raised as it is."""
    failure: Exception | None = None
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work, name="beside")
            try:
                yield task
            except Exception as error:  # noqa: BLE001 - it is raised below, and not in a group
                failure = error
            finally:
                task.cancel()
    except ExceptionGroup as of_work:
        # There is one task, so there is one. What the rest died of matters more than what was done beside it.
        failure = failure or of_work.exceptions[0]
    if failure is not None:
        raise failure
