"""What the demo says while it runs: one line for each thing that happens, with the seconds since its beginning."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

import click

from remuda.cli.listing import has_colour

if TYPE_CHECKING:
    from typing import TextIO

    from remuda.ports.clock import Clock

_QUIET_S: Final = 4.0
"""How far it is, is said no more often than this."""


class Screen:
    """Writes lines."""

    def __init__(self, out: TextIO, clock: Clock) -> None:
        self._out, self._clock = out, clock
        self._colour = has_colour(out, os.environ)
        self._began_at = clock.monotonic()
        self._last, self._last_at = "", self._began_at

    @property
    def elapsed_s(self) -> float:
        return self._clock.monotonic() - self._began_at

    def command(self, text: str) -> None:
        """Say a command as a person would type it."""
        self._line("$", text, fg="cyan")

    def fault(self, text: str) -> None:
        """Say what is done to the fleet now."""
        self._line("!", text, fg="yellow")

    def says(self, text: str) -> None:
        self._line(" ", text)

    def good(self, text: str) -> None:
        self._line("=", text, fg="green")

    def bad(self, text: str) -> None:
        self._line("x", text, fg="red")

    def progress(self, text: str) -> None:
        """Say how far it is, if that is news and the last words are some time ago."""
        if text != self._last and self._clock.monotonic() - self._last_at >= _QUIET_S:
            self._last = text
            self._line(" ", text, dim=True)

    def table(self, lines: list[str]) -> None:
        """Show a table: its last column says how each thing did."""
        self._write("")
        for number, line in enumerate(lines):
            before, gap, last = line.rpartition("  ")
            colour = "green" if last.strip() == "ok" else "red"
            self._write(
                self._style(line, bold=True)
                if number == 0
                else before + gap + self._style(last, fg=colour)
            )
        self._write("")

    def plain(self, text: str) -> None:
        self._write(text)

    def last_line(self, text: str, *, ok: bool) -> None:
        self._write(self._style(text, fg="green" if ok else "red", bold=True))

    def _line(self, sign: str, text: str, *, fg: str | None = None, dim: bool = False) -> None:
        at = self._style(f"{self.elapsed_s:6.1f}s", dim=True)
        said = self._style(f"{sign} {text}", fg=fg, dim=dim)
        self._last_at = self._clock.monotonic()
        self._write(f"{at} {said}")

    def _style(
        self, text: str, *, fg: str | None = None, dim: bool = False, bold: bool = False
    ) -> str:
        plain = fg is None and not dim and not bold
        if not self._colour or plain:
            return text
        return click.style(text, fg=fg, dim=dim or None, bold=bold or None)

    def _write(self, text: str) -> None:
        """Write a line. Who has stopped reading must not keep the fleet from being ended."""
        with contextlib.suppress(OSError):
            click.echo(text, file=self._out, color=self._colour)
