"""
What a job printed, as one stream with offsets that dispatch counts by, out of a file that its guest writes. No I/O.

The guest is hostile, or only careless: the file may shrink, be replaced, or grow for ever; and it may come as a new
file with each piece, where a driver carries it over. So nothing is believed of the file but this: if the bytes before
our place in it are those that we took from there, what follows them follows in the stream. Else it is another text, and
all of it follows. The stream is bounded, whatever the guest does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.ports.local_jobs import LOG_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES: Final = 128 * 1024
"""The most that is told at once."""
STREAM_MAX_BYTES: Final = LOG_MAX_BYTES + PIECE_BYTES
"""A little more than dispatch keeps, so that its log says that it was cut."""
_MARK_BYTES: Final = 64
"""By how much of what we took the text is known again."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the stream, that dispatch has not taken yet."""

    offset: int
    data: bytes = field(repr=False)


@dataclass(slots=True)
class Stream:
    """How much of one job's output dispatch has. After a restart it begins anew: what is told twice is kept once."""

    piece_bytes: int = PIECE_BYTES
    stream_max_bytes: int = STREAM_MAX_BYTES
    _taken: int = 0
    """The bytes of the stream that dispatch has."""
    _base: int = 0
    """Where in the stream the text that is in the file begins."""
    _mark: bytes | None = field(default=b"", repr=False)
    """What stood in the file before our place; None: that is not known any more."""

    def next(self, read: Callable[[int, int], bytes | None]) -> Piece:
        """Return what to tell next; empty if there is nothing new. ``read``: so many bytes of the file from there."""
        room = min(self.piece_bytes, self.stream_max_bytes - self._taken)
        if room <= 0:
            return self.nothing()
        place = self._taken - self._base
        before = min(1, place) if self._mark is None else len(self._mark)
        found = read(place - before, before + room)
        if found is None:  # not now; it is compared once it is back
            return self.nothing()
        if len(found) < before or not found.startswith(self._mark or b""):
            self._base, self._mark = self._taken, b""
            found, before = read(0, room) or b"", 0
        return Piece(self._taken, found[before:])

    def nothing(self) -> Piece:
        return Piece(self._taken, b"")

    def took(self, piece: Piece) -> None:
        """Dispatch has it."""
        assert piece.offset == self._taken, "one piece after the other"
        self._taken += len(piece.data)
        if piece.data:
            self._mark = ((self._mark or b"") + piece.data)[-_MARK_BYTES:]

    def go_back(self, offset: int) -> bool:
        """Begin again from where dispatch says that it has everything. False: it asks for what we have not told."""
        if not 0 <= offset < self._taken:
            return False
        # What stood in the file before the present text is gone: the present one follows.
        self._base = min(self._base, offset)
        self._taken, self._mark = offset, None
        return True
