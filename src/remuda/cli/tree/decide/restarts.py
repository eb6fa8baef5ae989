"""When a part that ended is started again, and when a start is given up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STEADY_S: Final = 60.0
"""A part that was ready and lived for so long had no part in how it ended before."""
FIRST_TRIES: Final = 3
"""So often a part may end before it was ever ready. What it says then, a person has to hear."""


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a part, over now."""

    lived_s: float
    was_ready: bool


def failures_after(before: int, life: Life) -> int:
    """Count how often in a row a part ended; a steady life begins the count anew."""
    return 1 if life.was_ready and life.lived_s >= STEADY_S else before + 1


def is_hopeless(failures: int, *, was_ever_ready: bool) -> bool:
    """Tell whether a part will not come up. One that did once is started for ever: jobs may depend on it."""
    return not was_ever_ready and failures >= FIRST_TRIES
