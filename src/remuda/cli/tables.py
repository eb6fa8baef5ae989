"""
Tables as text. Pure: rows and a moment come in, lines go out.

Names of jobs are written by strangers: what a terminal would obey is never printed.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

T = TypeVar("T")

GAP: Final = "   "
_NARROWEST: Final = 8
"""A column is cut no shorter than this, nor than its title: less says nothing."""
NOTHING: Final = "-"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_UNITS: Final = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "m"), (_MINUTE, "m", 1, "s"))
_TWO_UNITS_BELOW: Final = 10
"""Of fewer than so many of the larger unit, the smaller one is said too: 3m20s, but 25m."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column, and what stands in it for a row at a moment."""

    title: str
    cell: Callable[[T, datetime], str]
    wide: bool = False
    """Shown with ``-o wide`` only."""
    is_state: bool = False
    """Says how the thing does: it has a colour, and says so when the thing is gone."""
    whole: bool = False
    """Never cut: people copy it into their next command."""
    told_by_end: bool = False
    """Cut at its beginning, if at all: names of runners differ at their end."""
    gives_way: int = 0
    """Where not all fit side by side, the one with the highest number is left out first; those with 0 stay."""


GONE: Final = "gone"
_GOOD: Final = frozenset({"warm", "ready", "success", "running", "busy", "good"})
_BAD: Final = frozenset({"failure", "failed", "degraded", "not ready", "lost", "timed_out"})
_UNSURE: Final = frozenset(
    {"starting", "queued", "claimed", "leaving", "rolling", "paused", "draining", "deleting"}
)


def cells(
    columns: Sequence[Column[T]], row: T, now: datetime, *, gone: bool = False
) -> tuple[str, ...]:
    """Return what a line says, column by column."""
    return tuple(
        GONE if gone and c.is_state else plain(c.cell(row, now)) or NOTHING for c in columns
    )


def widths(columns: Sequence[Column[T]], lines: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Return how wide each column must be for all of it to be seen."""
    return tuple(
        max([len(column.title), *(display_width(line[n]) for line in lines)])
        for n, column in enumerate(columns)
    )


def roomy(columns: Sequence[Column[T]], wanted: Sequence[int], room: int) -> tuple[int, ...]:
    """Return the numbers of the columns to show: all if they fit, cut or not, else without those that give way."""
    least = [min(size, _least(column, size)) for column, size in zip(columns, wanted, strict=True)]
    chosen = list(range(len(columns)))
    while _total([least[n] for n in chosen]) > room:
        leaves = max(chosen, key=lambda n: columns[n].gives_way)
        if not columns[leaves].gives_way:
            break
        chosen.remove(leaves)
    return tuple(chosen)


def fitted(columns: Sequence[Column[T]], wanted: Sequence[int], room: int) -> tuple[int, ...]:
    """Take from the widest column until all fit side by side, or none can give more."""
    sizes = list(wanted)
    least = [_least(column, size) for column, size in zip(columns, wanted, strict=True)]
    while _total(sizes) > room:
        spare = [(size, n) for n, size in enumerate(sizes) if size > least[n]]
        if not spare:
            break
        sizes[max(spare)[1]] -= 1
    return tuple(sizes)


def header(columns: Sequence[Column[T]], sizes: Sequence[int]) -> str:
    return _joined([c.title for c in columns], sizes)


def line(
    columns: Sequence[Column[T]], said: Sequence[str], sizes: Sequence[int], *, colour: bool = False
) -> str:
    """Return one line of a table. Colours take no room."""
    padded = [
        _padded(text, size, by_end=column.told_by_end)
        for column, text, size in zip(columns, said, sizes, strict=True)
    ]
    if colour:
        padded = [
            _coloured(cell, said[n]) if columns[n].is_state else cell
            for n, cell in enumerate(padded)
        ]
    return GAP.join(padded).rstrip()


def table(
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    now: datetime,
    *,
    room: int | None = None,
    colour: bool = False,
) -> list[str]:
    """Return a table with its header; without ``room`` nothing is cut or left out."""
    said = [cells(columns, row, now) for row in rows]
    sizes = widths(columns, said)
    if room is not None:
        chosen = roomy(columns, sizes, room)
        columns = [columns[n] for n in chosen]
        said = [tuple(each[n] for n in chosen) for each in said]
        sizes = fitted(columns, [sizes[n] for n in chosen], room)
    return [
        header(columns, sizes),
        *(line(columns, each, sizes, colour=colour) for each in said),
    ]


def plain(text: str) -> str:
    """Return text on one line, without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def display_width(text: str) -> int:
    """Return how many places of a terminal a text takes."""
    return sum(map(_places, text))


def cut(text: str, size: int, *, by_end: bool = False) -> str:
    """Shorten a text to so many places, of its end if that is what tells it apart; that it was shortened is seen."""
    if display_width(text) <= size:
        return text
    kept, taken = [], 0
    for char in reversed(text) if by_end else text:
        taken += _places(char)
        if taken > size - 1:
            break
        kept.append(char)
    return "…" + "".join(reversed(kept)) if by_end else "".join(kept) + "…"


def duration(seconds: float) -> str:
    """Return a length of time as people say it: 12s, 3m20s, 25m, 7h5m, 3d2h, 40d."""
    whole = max(int(seconds), 0)
    for size, unit, smaller, name in _UNITS:
        count = whole // size
        if count:
            rest = whole % size // smaller
            both = count < _TWO_UNITS_BELOW and rest
            return f"{count}{unit}{rest}{name}" if both else f"{count}{unit}"
    return f"{whole}s"


def age(since: datetime | None, now: datetime) -> str:
    return "" if since is None else duration((now - since).total_seconds())


def _places(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me"}:
        return 0  # it is drawn over the one before
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _least(column: Column[T], wanted: int) -> int:
    return wanted if column.whole else max(_NARROWEST, len(column.title))


def _total(sizes: Sequence[int]) -> int:
    return sum(sizes) + len(GAP) * (len(sizes) - 1)


def _joined(texts: Sequence[str], sizes: Sequence[int]) -> str:
    return GAP.join(_padded(t, size) for t, size in zip(texts, sizes, strict=True)).rstrip()


def _padded(text: str, size: int, *, by_end: bool = False) -> str:
    shown = cut(text, size, by_end=by_end)
    return shown + " " * (size - display_width(shown))


def colour_of(said: str) -> str | None:
    """Return the colour of a state, if it has one: green is well, red is not, yellow will be one of these."""
    if said in _GOOD:
        return "green"
    if said in _BAD:
        return "red"
    return "yellow" if said in _UNSURE else None


def _coloured(cell: str, said: str) -> str:
    colour = colour_of(said)
    return cell if colour is None else click.style(cell, fg=colour)
