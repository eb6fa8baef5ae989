"""Whose turn it is: every repository of every installation, in turn, as many at a time as there is room for. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Rotation:
    """Goes round. An installation with a thousand repositories takes no more room than one with ten."""

    def __init__(self) -> None:
        self._after: dict[int, str] = {}
        """The last name of each installation that was taken."""
        self._last = 0
        """The installation that was served last."""

    def take(self, known: Mapping[int, Sequence[str]], room: int) -> list[tuple[int, str]]:
        """Return the next ones. ``known`` is sorted names by installation; it may change from time to time."""
        self._after = {n: name for n, name in self._after.items() if n in known}
        turns = {number: self._from(number, names) for number, names in known.items() if names}
        order = sorted(turns, key=lambda n: (n <= self._last, n))
        taken: list[tuple[int, str]] = []
        while order and len(taken) < room:
            for number in tuple(order):
                name = next(turns[number], None)
                if name is None:
                    order.remove(number)
                elif len(taken) < room:
                    taken.append((number, name))
                    self._after[number], self._last = name, number
        return taken

    def _from(self, number: int, names: Sequence[str]) -> Iterator[str]:
        start = bisect_right(names, self._after.get(number, ""))
        return iter((*names[start:], *names[:start]))
