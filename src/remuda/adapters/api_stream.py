"""Server-Sent Events, read from bytes as they come in pieces of any size."""

from __future__ import annotations

from typing import Final

from remuda.ports.api import ApiFault

_EVENT_MAX_BYTES: Final = 1024 * 1024


class EventReader:
    """Finds the data of events in a stream. Ids stand in our events' own data; comments are signs of life."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._skip_newline = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Take in what came; return the data of each event that is whole now."""
        found: list[bytes] = []
        for line in self._lines(piece):
            if line:
                self._field(line)
            elif self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        held = len(self._rest) + sum(map(len, self._data))
        if held > _EVENT_MAX_BYTES:
            why = f"an event has more than {_EVENT_MAX_BYTES // 1024} KiB"
            fix = "Check that the address is that of dispatch"
            raise ApiFault("The events could not be followed", why=why, fix=fix)
        return found

    def _lines(self, piece: bytes) -> list[bytes]:
        """Split at LF, CR or CR LF, wherever the pieces are cut."""
        whole = piece.removeprefix(b"\n") if self._skip_newline else piece
        if piece:
            self._skip_newline = piece.endswith(b"\r")
        text = (self._rest + whole).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = text.split(b"\n")
        return lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
