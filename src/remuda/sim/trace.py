"""
What happened in a run, one event per line, in the order it happened. The format: docs/reference/trace-format.md.

A trace holds only what the seed decides: no addresses, no wall time, nothing that depends on hashing. It must stay
byte for byte the same for the same seed.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSION = 1

WHY: ContextVar[str] = ContextVar("why", default="")
"""Why the running code acts. A controller sets it around its calls; the trace shows it beside them."""


@contextmanager
def because(why: str) -> Iterator[None]:
    """Give the reason for every call made inside."""
    token = WHY.set(why)
    try:
        yield
    finally:
        WHY.reset(token)


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One thing that happened. ``notable`` ones make up the timeline that a person reads."""

    at_s: float
    actor: str
    verb: str
    object: str
    outcome: str
    why: str = ""
    notable: bool = False

    def text(self) -> str:
        words = (_word(self.actor), _word(self.verb), _word(self.object), _word(self.outcome))
        line = f"{stamp(self.at_s)} {' '.join(words)}"
        return f"{line} # {' '.join(self.why.split())}" if self.why else line

    def json(self) -> str:
        fields = {
            "at": stamp(self.at_s),
            "actor": self.actor,
            "verb": self.verb,
            "object": self.object,
            "outcome": self.outcome,
            "why": self.why,
            "notable": self.notable,
        }
        return json.dumps(fields, ensure_ascii=False)


def stamp(at_s: float) -> str:
    """Write virtual time as ``hh:mm:ss.ffffff``. Hours go on past 24: a run has no midnight."""
    micros = round(at_s * 1_000_000)
    seconds, micros = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}.{micros:06d}"


def _word(text: str) -> str:
    """Keep the first five fields free of blanks, so that a line can be cut into fields."""
    return "_".join(text.split()) or "-"


class Trace:
    """Takes events and hands them on. ``sinks`` get each one as it happens; nothing is kept unless one does."""

    def __init__(self, time: Callable[[], float], *sinks: Callable[[TraceEvent], None]) -> None:
        self._time = time
        self._sinks = sinks
        self.event_count = 0
        self.faults: Counter[str] = Counter()

    @property
    def on(self) -> bool:
        """Whether anybody listens: what costs time to describe need not be described otherwise."""
        return bool(self._sinks)

    def add(self, actor: str, verb: str, object_: str, outcome: str, why: str = "") -> None:
        self._emit(TraceEvent(self._time(), actor, verb, object_, outcome, why))

    def note(self, actor: str, verb: str, object_: str, outcome: str, why: str = "") -> None:
        """Add an event that belongs on the timeline: a crash, a new leader, a violation."""
        self._emit(TraceEvent(self._time(), actor, verb, object_, outcome, why, notable=True))

    def _emit(self, event: TraceEvent) -> None:
        self.event_count += 1
        for sink in self._sinks:
            sink(event)


def header(scenario: str, seed: int, options: str = "") -> str:
    """Return the first line of a trace: what to run to get it again."""
    return f"# remuda trace v{VERSION} scenario={scenario} seed={seed} {options}".rstrip()
