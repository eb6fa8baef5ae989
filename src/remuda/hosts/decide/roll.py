"""
How a new configuration goes over a fleet: a few hosts at a time, and no further than it does good. Pure.

A host holds one of the roll's places from the moment it may change until it has been well with the new configuration
for a while; one that failed keeps its place. So a configuration that breaks hosts breaks as many as there are places,
and then the roll stands still by itself. A new configuration starts anew; so does a person who has looked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from remuda.hosts.decide.lifecycle import Phase, is_given_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.hosts.decide.lifecycle import Limits, Seen


class Stand(StrEnum):
    """Where a host stands in the roll to the wanted configuration."""

    DONE = "done"
    CHANGING = "changing"
    """It may change, is changing, or has changed and is not proven yet."""
    FAILED = "failed"
    WAITING = "waiting"
    ASIDE = "aside"
    """It takes no part: it is paused, leaves, or was never bootstrapped."""


@dataclass(frozen=True, slots=True)
class Member:
    """One host of the fleet."""

    name: str
    stand: Stand
    why: str = ""
    """What failed there, if it did."""


@dataclass(frozen=True, slots=True)
class Roll:
    """The state of a roll, and who may change now."""

    cap: int
    changing: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    granted: frozenset[str] = frozenset()
    """Those that may go on, and those that may begin."""
    halted: str = ""
    """Why nobody new may begin, as a sentence without its full stop; empty if they may."""

    def held_back(self) -> str:
        """Say why a host that waits may not change now."""
        if self.halted:
            return self.halted
        busy = ", ".join((*self.changing, *self.failed)[:3])
        return f"{self.cap} at a time get the new configuration, and now it is the turn of {busy}"


def stand(seen: Seen, limits: Limits, *, begun: bool = False) -> Stand:
    """Say where a host stands. ``begun``: it was let go just now, and its status does not say so yet."""
    if seen.deleting or seen.paused or not seen.config_hash or seen.phase is Phase.RELEASING:
        return Stand.ASIDE
    if is_given_up(seen, limits) or seen.key_refused:
        return Stand.FAILED
    if begun or seen.phase in (Phase.UPDATING, Phase.DRAINING):
        return Stand.CHANGING
    if seen.config_hash != seen.wanted_hash or seen.changed:
        return Stand.WAITING
    return Stand.DONE if seen.phase in (Phase.READY, Phase.NOT_READY) else Stand.CHANGING


def roll(members: Iterable[Member], percent: int) -> Roll:
    """Say who may change. The answer does not depend on the order of the members."""
    in_order = sorted(members, key=lambda member: member.name)
    taking_part = [m for m in in_order if m.stand is not Stand.ASIDE]
    cap = max(1, len(taking_part) * percent // 100)
    changing = tuple(m.name for m in taking_part if m.stand is Stand.CHANGING)
    failed = [m for m in taking_part if m.stand is Stand.FAILED]
    waiting = tuple(m.name for m in taking_part if m.stand is Stand.WAITING)
    places = max(0, cap - len(changing) - len(failed))
    halted = _halt(failed, cap) if waiting or failed else ""
    new = () if halted else waiting[:places]
    # One that failed may try again when its time comes: it has its place.
    granted = frozenset((*changing, *new, *(m.name for m in failed)))
    return Roll(cap, changing, tuple(m.name for m in failed), waiting, granted, halted)


def _halt(failed: list[Member], cap: int) -> str:
    if len(failed) < cap:
        return ""
    names = ", ".join(m.name for m in failed[:3]) + (" and others" if len(failed) > 3 else "")  # noqa: PLR2004 - three names make a sentence
    why = next((m.why for m in failed if m.why), "")
    because = f" ({why})" if why else ""
    return (
        f"the roll is halted: the new configuration failed on {names}{because}, and {cap} may fail before the rest is"
        f" spared"
    )
