"""The timeline of a run: the notable events, in words. Only formats; knows no scenario."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.sim.trace import TraceEvent

LINES_MAX = 80
"""A longer timeline shows its beginning and its end; the trace has it all."""

_MARKS = {
    "start": "+",
    "crash": "x",
    "exit": "x",
    "stop": "x",
    "pause": "-",
    "resume": "+",
    "partition": "/",
    "heal": "+",
    "skew": "~",
    "lead": "*",
    "stop-leading": ".",
    "calm": "=",
    "converged": "=",
    "quiet": "=",
    "violation": "!",
}
_PHRASES = {
    "start": "starts",
    "crash": "is killed",
    "exit": "ends",
    "stop": "is told to stop",
    "pause": "stops dead",
    "resume": "goes on",
    "partition": "is cut off",
    "heal": "is reached again",
    "lead": "leads",
    "stop-leading": "no longer leads",
}
_PLAIN = frozenset({"ok", "killed", "stopped", "told"})


class Timeline:
    """Keeps the first and the last notable events."""

    def __init__(self) -> None:
        self._first: list[TraceEvent] = []
        self._last: deque[TraceEvent] = deque(maxlen=LINES_MAX // 2)
        self._count = 0

    def take(self, event: TraceEvent) -> None:
        if not event.notable:
            return
        self._count += 1
        if len(self._first) < LINES_MAX // 2:
            self._first.append(event)
        else:
            self._last.append(event)

    def lines(self) -> Iterable[str]:
        yield from map(_line, self._first)
        left_out = self._count - len(self._first) - len(self._last)
        if left_out:
            yield f"  ... {left_out} more; --trace FILE writes them all"
        yield from map(_line, self._last)


def _line(event: TraceEvent) -> str:
    words = [_PHRASES.get(event.verb, event.verb)]
    if event.outcome not in _PLAIN:
        words.append(f"({event.outcome})")
    if event.why:
        words.append(event.why)
    mark = _MARKS.get(event.verb, ">")
    return f"  {clock_text(event.at_s)}  {mark} {event.actor:<9} {' '.join(words)}"


def clock_text(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def count_text(counts: Mapping[str, int]) -> str:
    """Say how many of what: ``5 crash, 2 pause``."""
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"
