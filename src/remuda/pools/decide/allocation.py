"""
Share the room of a fleet between its pools. Pure.

In tiers: the load of every pool, then what is missing to every floor, then the rest of every target. Load is granted in
full even where no host is left for it: those runners stay Pending, which says that a host must be bought. Idle runners
of one pool therefore give way to the jobs of another, below their own floor if need be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.pools.decide.capacity import Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one pool would like to have."""

    pool: str
    cost: int
    """Units of room that one of its runners takes."""
    floor: int
    """Runners that it should have even when nobody needs them."""
    load: int
    """Runners that jobs need now."""
    target: int
    """Runners that it would have if it were alone."""

    @property
    def granted(self) -> int:
        """What it gets whatever there is."""
        return max(0, min(self.load, self.target))

    @property
    def floor_top(self) -> int:
        """Where its floor tier ends. Busy runners count towards the floor: it is not added to them."""
        return max(self.granted, min(self.floor, self.target))


def allocate(asks: Iterable[Ask], room: Room) -> dict[str, int]:
    """Return the replicas of each pool, from its load to its target."""
    in_order = sorted(asks, key=lambda a: (-a.cost, a.pool))  # large ones first: they pack worst
    got = {ask.pool: ask.granted for ask in in_order}
    assert len(got) == len(in_order), "a pool asked twice"
    for ask in in_order:
        room, _ = room.place(ask.cost, ask.granted)
    for top in (_floor_top, _target):
        missing = {ask: top(ask) - got[ask.pool] for ask in in_order if top(ask) > got[ask.pool]}
        granted, room = _grant(missing, room)
        for ask, count in granted.items():
            got[ask.pool] += count
    return got


def _floor_top(ask: Ask) -> int:
    return ask.floor_top


def _target(ask: Ask) -> int:
    return max(ask.granted, ask.target)


def _grant(missing: Mapping[Ask, int], room: Room) -> tuple[dict[Ask, int], Room]:
    """Grant a tier: whole if it fits, else by largest remainder, then whatever still has a host."""
    if not missing:
        return {}, room
    granted, left = _placed(missing, room)
    if granted == missing:
        return granted, left
    usable = room.usable(min(ask.cost for ask in missing))
    total = sum(ask.cost * count for ask, count in missing.items())
    # Each pool's share is the same fraction of what it misses. All remainders have the same denominator.
    shares = {ask: min(count, count * usable // total) for ask, count in missing.items()}
    remainder = {ask: count * usable % total for ask, count in missing.items()}
    granted, left = _placed(shares, room)
    return _fill(granted, missing, left, sorted(missing, key=lambda a: (-remainder[a], a.pool)))


def _placed(counts: Mapping[Ask, int], room: Room) -> tuple[dict[Ask, int], Room]:
    placed = {}
    for ask, count in counts.items():
        room, placed[ask] = room.place(ask.cost, count)
    return placed, room


def _fill(
    granted: dict[Ask, int], missing: Mapping[Ask, int], room: Room, in_order: list[Ask]
) -> tuple[dict[Ask, int], Room]:
    """Hand out what is left, one runner per pool and round, until nobody who wants one has a host for it."""
    while wanting := [a for a in in_order if granted[a] < missing[a] and room.fits(a.cost)]:
        for ask in wanting:
            room, placed = room.place(ask.cost, 1)
            granted[ask] += placed
    return granted, room
