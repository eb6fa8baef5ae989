"""Our own words beside a job's output: one line that changes where a terminal watches, plain lines where none does."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import TextIO

_CLEAR: Final = "\r\x1b[K"
_PATIENCE_S: Final = 5.0
"""Where no terminal watches, a wait is worth a line only once it is longer than this."""


class Screen:
    """Writes to ``stream``, which is no place for the job's own output."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._watched = stream.isatty()
        self._quiet = quiet
        self._shown = ""

    def progress(self, text: str, waited_s: float) -> None:
        """Show how far it is, in place of what was shown before."""
        if self._quiet or text == self._shown:
            return
        if not self._watched:
            if waited_s >= _PATIENCE_S:
                self._shown = text
                self._write(f"remuda: {text}\n")
            return
        width = shutil.get_terminal_size().columns
        line = f"remuda: {text}"
        cut = line if len(line) < width else line[: max(width - 2, 1)] + "…"
        self._shown = text
        self._write(_CLEAR + cut)

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
            self._quiet = True  # nobody listens any more: the job goes on all the same
