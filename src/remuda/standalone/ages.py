"""How long ago, in the words of kubectl: ``12s``, ``3m5s``, ``17m``, ``4h2m``, ``3d7h``, ``2y41d``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.kube.times import parse_time

if TYPE_CHECKING:
    from datetime import datetime

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY

_STEPS: Final = (
    # up to this age (seconds), the larger unit, its letter, and the smaller one that is shown beside it
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    (float("inf"), _YEAR, "y", 0, ""),
)
"""Two digits of precision or so: nobody needs the seconds of a day."""


def human_duration(seconds: float) -> str:
    """Spell a duration."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    _, large, letter, small, small_letter = next(s for s in _STEPS if whole < s[0])
    text = f"{whole // large}{letter}"
    rest = whole % large // small if small else 0
    return f"{text}{rest}{small_letter}" if rest else text


def age(timestamp: str | None, now: datetime) -> str:
    """Spell how long ago a time as the API writes it was."""
    if not timestamp:
        return "<unknown>"
    try:
        then = parse_time(timestamp)
    except ValueError:
        return "<invalid>"
    return human_duration((now - then).total_seconds())
