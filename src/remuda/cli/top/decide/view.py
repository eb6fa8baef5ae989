"""What the person at the screen chose: the pane, the row, the order, the filter. Each key is a step to another view."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from remuda.cli.top.decide.board import ABOVE_ROWS, Board, board, first_shown
from remuda.cli.top.decide.panes import SHAPES, Pane

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from remuda.cli.top.decide.board import BoardRow
    from remuda.cli.top.decide.sight import Sight


@dataclass(frozen=True, slots=True)
class Cursor:
    """A chosen row. It is followed by its key wherever it goes; the first row is chosen by being the first."""

    key: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What was chosen."""

    focused: Pane = Pane.POOLS
    filtered: str = ""
    orders: Mapping[Pane, int] = field(default_factory=dict)
    cursors: Mapping[Pane, Cursor] = field(default_factory=dict)

    def next_pane(self, step: int = 1) -> View:
        panes = list(Pane)
        there = (panes.index(self.focused) + step) % len(panes)
        return replace(self, focused=panes[there])

    def next_order(self) -> View:
        """Sort the focused pane another way; the first row is chosen again."""
        pane = self.focused
        then = (self.orders.get(pane, 0) + 1) % len(SHAPES[pane].orders)
        return replace(
            self,
            orders={**self.orders, pane: then},
            cursors={**self.cursors, pane: Cursor()},
        )

    def filtering(self, words: str) -> View:
        return replace(self, filtered=words)

    def board(self, pane: Pane, sight: Sight, now: datetime) -> Board:
        """Return a pane as it is chosen."""
        return board(pane, sight, now, order=self.orders.get(pane, 0), filtered=self.filtered)

    def moved(self, shown: Board, step: int) -> View:
        """Choose another row of a pane, as far as there are any."""
        count = len(shown.rows)
        if not count:
            return self
        return self.choosing(shown, min(max(self.cursor(shown) + step, 0), count - 1))

    def choosing(self, shown: Board, index: int) -> View:
        """Choose a row by its place, and the pane with it."""
        if not 0 <= index < len(shown.rows):
            return replace(self, focused=shown.pane)
        # The first row is not held by its key: who stays on top sees what comes there.
        cursor = Cursor(shown.rows[index].key if index else "", index)
        return replace(self, focused=shown.pane, cursors={**self.cursors, shown.pane: cursor})

    def clicked(self, shown: Board, y: int, height: int) -> View:
        """Choose what stands at a line of a pane that is so high."""
        cursor = self.cursor(shown) if shown.pane is self.focused else 0
        first = first_shown(cursor, height - ABOVE_ROWS, len(shown.rows))
        return self.choosing(shown, first + y - ABOVE_ROWS if y >= ABOVE_ROWS else -1)

    def cursor(self, shown: Board) -> int:
        """Return the place of the chosen row now; where it was, if it is gone."""
        cursor = self.cursors.get(shown.pane, Cursor())
        found = next((n for n, row in enumerate(shown.rows) if row.key == cursor.key), None)
        if cursor.key and found is not None:
            return found
        return max(min(cursor.index, len(shown.rows) - 1), 0)

    def chosen(self, shown: Board) -> BoardRow | None:
        return shown.rows[self.cursor(shown)] if shown.rows else None
