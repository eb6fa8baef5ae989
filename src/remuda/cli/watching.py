"""
Listings that go on: what changed since the last look, and how a terminal or a pipe is told of it.

The fleet is asked again and again: that outlives a restart of the server, and shows whatever moved, by whomever.
"""

from __future__ import annotations

import shutil
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from remuda.ports.api import ApiNotFound, ApiUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from remuda.ports.clock import Clock

T = TypeVar("T")
_T_contra = TypeVar("_T_contra", contravariant=True)
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class Change(StrEnum):
    """What happened to a row since the last look."""

    ADDED = "added"
    CHANGED = "changed"
    GONE = "gone"


class Changes(Generic[T]):
    """Remembers the last look."""

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        self._key = key
        self._seen: dict[Hashable, T] = {}

    def since(self, rows: Sequence[T]) -> list[tuple[Change, T]]:
        """Return what is new, what differs, and what is no longer there, in this order of the rows."""
        now = {self._key(row): row for row in rows}
        found = [
            (Change.CHANGED if key in self._seen else Change.ADDED, row)
            for key, row in now.items()
            if self._seen.get(key) != row
        ]
        found += [(Change.GONE, row) for key, row in self._seen.items() if key not in now]
        self._seen = now
        return found


class Board(Protocol[_T_contra]):
    """Where a look is shown."""

    def show(self, rows: Sequence[_T_contra]) -> None: ...


async def follow(
    read: Callable[[], Awaitable[Sequence[T]]],
    board: Board[T],
    clock: Clock,
    *,
    every_s: float,
    say: Callable[[str], None],
) -> None:
    """
    Look and show, until cancelled. The first look must succeed.

    A server that cannot be reached afterwards is waited for, and ``say`` is told once. What was there and is not found
    any more is gone.
    """
    board.show(await read())
    lost = False
    while True:
        await clock.sleep(every_s)
        try:
            rows = await read()
        except ApiNotFound:
            rows = ()
        except ApiUnavailable as error:
            if not lost:
                say(f"{error.why}. It is asked again until it answers.")
            lost = True
            continue
        if lost:
            say("It answers again.")
        lost = False
        board.show(rows)


def frame(lines: Sequence[str], height: int) -> str:
    """Return a screen full of lines, drawn over the one before. The last line says what is left out."""
    shown = list(lines)
    if len(shown) >= height:
        left_out = len(shown) - (height - 2)
        shown = [*shown[: height - 2], f"… {left_out} more"]
    return _HOME + "".join(f"{text}{_REST_OF_LINE}\n" for text in shown) + _REST_OF_SCREEN


def screen_height() -> int:
    return max(shutil.get_terminal_size().lines, 3)
