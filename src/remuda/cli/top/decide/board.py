"""One pane as lines: its rows, filtered, sorted, and cut to the room that it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.cli.tables import GAP as LISTING_GAP
from remuda.cli.tables import NOTHING, cells, cut, display_width, fitted, widths
from remuda.cli.top.decide.bars import painted
from remuda.cli.top.decide.lines import Line, Span, Tone, filled, text_of, tone_of
from remuda.cli.top.decide.panes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from remuda.cli.tables import Column
    from remuda.cli.top.decide.panes import About, Pane, Shape
    from remuda.cli.top.decide.sight import Sight

GAP: Final = "  "
ABOVE_ROWS: Final = 2
"""The title and the names of the columns."""


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A row: what it is called, what it is about, and what it says."""

    key: str
    about: About
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A pane's rows as they are to be shown, whatever the room."""

    pane: Pane
    rows: tuple[BoardRow, ...]
    of: int
    """How many there are without the filter."""
    order: str

    @property
    def lines(self) -> int:
        """How many lines it needs for all to be seen."""
        return ABOVE_ROWS + max(len(self.rows), 1)


def board(pane: Pane, sight: Sight, now: datetime, *, order: int = 0, filtered: str = "") -> Board:
    """Return a pane's rows: those that have the words of the filter, in the order wanted."""
    shape = SHAPES[pane]
    rows = shape.rows(sight)
    sort = shape.orders[order % len(shape.orders)]
    made = [
        BoardRow(shape.key(row), shape.about(row), cells(shape.columns, row, now))
        for row in sorted(rows, key=sort.key)
    ]
    words = filtered.casefold().split()
    kept = tuple(row for row in made if _has(row, words))
    return Board(pane=pane, rows=kept, of=len(rows), order=sort.name)


def _has(row: BoardRow, words: Sequence[str]) -> bool:
    text = " ".join((row.key, row.about.pool, *row.said)).casefold()
    return all(word in text for word in words)


def first_shown(index: int, room: int, count: int) -> int:
    """Return the first row to show, so that the one with the cursor is seen."""
    return max(0, min(index - room // 2, count - room))


def drawn(
    shown: Board, *, width: int, height: int, cursor: int | None, is_focused: bool
) -> tuple[Line, ...]:
    """Return a pane as exactly so many lines of exactly so many places."""
    lines = [_title(shown, width, height, is_focused=is_focused)]
    if height > 1:
        lines += _body(shown, width, height - 1, cursor if is_focused else None)
    blank = filled((), width)
    return tuple([*lines, *[blank] * (height - len(lines))][:height])


def _title(shown: Board, width: int, height: int, *, is_focused: bool) -> Line:
    tone = Tone.CHOSEN if is_focused else Tone.STRONG
    number = str(shown.of) if shown.of == len(shown.rows) else f"{len(shown.rows)} of {shown.of}"
    left: Line = (Span(f" {shown.pane.value} {number} ", tone),)
    hidden = len(shown.rows) - max(height - ABOVE_ROWS, 0)
    more = f" {hidden} more," if 0 < hidden < len(shown.rows) else ""
    right: Line = (Span(f"{more} by {shown.order} ", Tone.QUIET),) if height > 1 else ()
    rule = "─" * max(width - len(text_of(left)) - len(text_of(right)) - 1, 0)
    return filled((*left, Span(rule, Tone.QUIET), *right), width, "─")


def _body(shown: Board, width: int, height: int, cursor: int | None) -> list[Line]:
    shape = SHAPES[shown.pane]
    if not shown.rows:
        said = "Nothing here fits the filter." if shown.of else shape.empty
        return [filled((Span(f" {said}", Tone.QUIET),), width)]
    room = max(height - 1, 0)
    first = first_shown(cursor or 0, room, len(shown.rows))
    visible = shown.rows[first : first + room]
    chosen, sizes = columns_for(shape, shown.rows, width - 2)
    head = GAP.join(
        shape.columns[n].title.ljust(size) for n, size in zip(chosen, sizes, strict=True)
    )
    lines = [filled((Span(f" {head}", Tone.QUIET),), width)]
    for number, row in enumerate(visible, first):
        line = _row(shape, row, chosen, sizes)
        if number == cursor:
            line = (Span(text_of(filled(line, width)), Tone.CHOSEN),)
        lines.append(filled(line, width))
    return lines


def _row(shape: Shape[Any], row: BoardRow, chosen: Sequence[int], sizes: Sequence[int]) -> Line:
    spans: list[Span] = [Span(" ")]
    for place, (n, size) in enumerate(zip(chosen, sizes, strict=True)):
        text = cut(row.said[n], size)
        spans += _toned(shape, shape.columns[n], text, row.said[n])
        last = place == len(sizes) - 1
        spans.append(Span(" " * (size - display_width(text)) + ("" if last else GAP)))
    return tuple(spans)


def _toned(shape: Shape[Any], column: Column[Any], text: str, said: str) -> Line:
    if column.title == shape.bar:
        return painted(text)
    return (Span(text, tone_of(said) if column.is_state else Tone.PLAIN),)


def columns_for(
    shape: Shape[Any], rows: Sequence[BoardRow], room: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return which columns to show and how wide each is: the wide ones that say something, where there is room."""
    needed = widths(shape.columns, [row.said for row in rows])
    chosen = [n for n, column in enumerate(shape.columns) if not column.wide]
    for n, column in enumerate(shape.columns):
        is_blank = all(row.said[n] == NOTHING for row in rows)
        if column.wide and not is_blank and _total([needed[i] for i in (*chosen, n)]) <= room:
            chosen = sorted((*chosen, n))
    columns = [shape.columns[n] for n in chosen]
    # Ours stand closer than those of a listing, for which this counts.
    wider = room + (len(LISTING_GAP) - len(GAP)) * (len(chosen) - 1)
    return tuple(chosen), fitted(columns, [needed[n] for n in chosen], wider)


def _total(sizes: Sequence[int]) -> int:
    return sum(sizes) + len(GAP) * (len(sizes) - 1)
