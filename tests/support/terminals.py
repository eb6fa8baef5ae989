"""
A command at a terminal, as a person has it: a pty with a size, keys to press, and what stands on it.

    with at_terminal([...], size=(80, 24)) as terminal:
        await terminal.says("Pools 1")
        terminal.press("q")
        assert await terminal.ended() == 0
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WITHIN_S = 120.0
_PIECE = 65536
_SHOWN = 3000
_CONTROL = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # moves, colours, modes
    rb"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles
    rb"|\x1b[P^_X].*?\x1b\\"  # questions to the terminal
    rb"|\x1b[()][A-Z0-9]|\x1b[=>78cM]"
)


@dataclass
class Terminal:
    """A command and its terminal."""

    process: subprocess.Popen[bytes]
    master: int
    raw: bytearray = field(default_factory=bytearray)
    _mark: int = 0

    def read(self) -> str:
        """Take in what was written, and return all of it since the mark, without what a terminal obeys."""
        with contextlib.suppress(BlockingIOError, OSError):  # nothing now, or nothing any more
            while piece := os.read(self.master, _PIECE):
                self.raw += piece
        return _CONTROL.sub(b"", bytes(self.raw[self._mark :])).decode(errors="replace")

    def mark(self) -> None:
        """Forget what was written so far."""
        self.read()
        self._mark = len(self.raw)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    async def says(self, *words: str) -> None:
        """Wait until all of these words were written since the mark."""

        async def missing() -> tuple[list[str], str]:
            text = self.read()
            return [word for word in words if word not in text], text[-_SHOWN:]

        await eventually(missing, lambda found: not found[0], within_s=WITHIN_S)

    async def ended(self) -> int:
        """Wait for its end, and return its exit code."""

        async def code() -> int | None:
            self.read()  # a full pty would hold it
            return self.process.poll()

        found = await eventually(code, lambda c: c is not None, within_s=WITHIN_S)
        assert found is not None
        await asyncio.sleep(0)
        self.read()
        return found


@contextlib.contextmanager
def at_terminal(
    command: Sequence[str],
    *,
    size: tuple[int, int] = (80, 24),
    env: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:
    """Start a command at a terminal of so many columns and lines; at the end it is killed."""
    master, slave = pty.openpty()
    width, height = size
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    os.set_blocking(master, False)
    base = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "CI"}}
    sized = {"TERM": "xterm-256color", "COLUMNS": str(width), "LINES": str(height)}
    process = subprocess.Popen(  # noqa: S603 - our own command
        list(command),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**base, **sized, **(env or {})},
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
