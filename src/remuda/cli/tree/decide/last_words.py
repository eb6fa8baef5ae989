"""What the end of a part's log says about why it ended. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LINE_CHARS_MAX: Final = 400
_FAULT: Final = re.compile(
    r"^(?:remuda|Error): (?P<what>[^\n]+)\n  why: (?P<why>[^\n]+)\n  fix: (?P<fix>[^\n]+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class LastWords:
    """Why a part ended, as far as it said so."""

    what: str
    why: str
    fix: str

    @property
    def line(self) -> str:
        return f"{self.what}: {self.why}"


def last_words(part: str, log: str, *, path: str) -> LastWords:
    """Return the last fault in a log; where there is none, the last line of it."""
    if found := list(_FAULT.finditer(log)):
        return LastWords(*(found[-1][name].strip() for name in ("what", "why", "fix")))
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = lines[-1][:_LINE_CHARS_MAX].rstrip(".") if lines else "it said nothing"
    return LastWords(f"The {part} ended", said, f"Its log is {path}")
