"""Where each pane stands on a screen of some size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.cli.top.decide.panes import Pane

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BESIDE: Final = 150
"""A screen of so many places has two columns of panes."""
_LEAST: Final = 3
"""A pane with fewer lines than its title, the names of its columns and a row is its title only."""
_GLANCE: Final = 5
"""What panes get before the one with the keys gets all that it wants."""
_ONE: Final = (tuple(Pane),)
_TWO: Final = ((Pane.POOLS, Pane.HOSTS, Pane.JOBS), (Pane.RUNNERS, Pane.EVENTS))


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle of the screen."""

    x: int
    y: int
    width: int
    height: int


def places(
    needs: Mapping[Pane, int], focused: Pane, *, width: int, top: int, bottom: int
) -> dict[Pane, Place]:
    """Return where each pane stands between two lines of the screen; one without a place is not shown."""
    columns = _TWO if width >= BESIDE else _ONE
    gap = len(columns) - 1
    each = (width - gap) // len(columns)
    found: dict[Pane, Place] = {}
    for number, panes in enumerate(columns):
        x = number * (each + gap)
        across = width - x if number == len(columns) - 1 else each
        y = top
        for pane, height in heights(panes, needs, focused, bottom - top).items():
            if height:
                found[pane] = Place(x, y, across, height)
            y += height
    return found


def heights(
    panes: Sequence[Pane], needs: Mapping[Pane, int], focused: Pane, room: int
) -> dict[Pane, int]:
    """
    Share the lines of a column among its panes. All of it is used.

    Each has its title. The one with the keys comes first, yet leaves the others a glance if that is possible.
    """
    if room < len(panes):
        only = focused if focused in panes else panes[0]
        return {pane: max(room, 0) if pane is only else 0 for pane in panes}
    given = dict.fromkeys(panes, 1)
    left = room - len(panes)
    first = [pane for pane in panes if pane is focused]
    others = [pane for pane in panes if pane is not focused]
    for pane in first:
        left -= _give(given, pane, min(needs[pane], max(room // 2, _LEAST)), left)
    for pane in others:
        left -= _give(given, pane, min(needs[pane], _GLANCE), left)
    for pane in (*first, *others):
        left -= _give(given, pane, needs[pane], left)
    given[first[0] if first and given[first[0]] < needs[first[0]] else panes[-1]] += left
    return given


def _give(given: dict[Pane, int], pane: Pane, wanted: int, left: int) -> int:
    """Let a pane have up to so many lines; none if it could not show a row with them. Returns how many it took."""
    more = min(wanted - given[pane], left)
    if more <= 0 or given[pane] + more < _LEAST:
        return 0
    given[pane] += more
    return more
