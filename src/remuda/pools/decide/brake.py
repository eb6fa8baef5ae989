"""The start-rate brake: how many more runners of a fleet may begin to start. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE = timedelta(seconds=300)
"""
A pool without a start deadline holds slots that its siblings need for no longer than the default deadline. Its starts
still hold back its own: it may wait for itself for as long as it likes.
"""

Blocked = Literal["", "fleet_cap", "no_healthy_node", "fleet_view_error"]


@dataclass(frozen=True, slots=True)
class Slots:
    """How many runners may be made now, and if none, why."""

    free: int
    blocked: Blocked = ""
    most: int | None = None
    """How many of the fleet may start at once; None if that is not limited."""


def slots(maxima: Iterable[int], starting: int, healthy_nodes: int | None) -> Slots:
    """
    Return the free start slots of a fleet. The lowest maximum among sibling pools wins.

    ``starting`` counts unbound runners and those that are not yet seen: the scheduler may bind them all at once.
    ``healthy_nodes`` is None when the nodes could not be read.
    """
    maximum = min(maxima, default=None)
    if maximum is None or healthy_nodes is None:
        return Slots(0, "fleet_view_error")
    if healthy_nodes <= 0:
        return Slots(0, "no_healthy_node")
    free = maximum - starting
    return Slots(free, most=maximum) if free > 0 else Slots(0, "fleet_cap", most=maximum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one pool has of its fleet's start slots, and what it could not get when it last looked."""

    pool: str
    starting: int
    wants: int = 0
    since: float = float("inf")
    """Since when it has waited; infinite if it does not."""


def share(most: int, own: Claim, others: Iterable[Claim]) -> int:
    """
    Return how many start slots a pool may hold in all, beside its siblings. What it ``wants`` itself is left open.

    Whoever looked first took every slot that became free, so one pool that no host fits kept all others out for ever.
    Now each that waits has an equal share, or what it wants if that is less. What cannot be divided goes to who has
    waited longest.
    """
    rivals = []
    left = most
    for other in others:
        if other.wants > 0:
            rivals.append(other)
        else:
            left -= other.starting
    rivals.sort(key=lambda r: r.starting + r.wants)
    while rivals and rivals[0].starting + rivals[0].wants <= left // (len(rivals) + 1):
        modest = rivals.pop(0)
        left -= modest.starting + modest.wants
    each, rest = divmod(max(0, left), len(rivals) + 1)
    before = sum((rival.since, rival.pool) < (own.since, own.pool) for rival in rivals)
    return each + (1 if before < rest else 0)
