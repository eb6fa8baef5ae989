"""
How a new configuration goes over a fleet: a few hosts at a time, and no further than it does good. Pure.

A host holds one of the roll's places from the moment it may change until it has been well with the new configuration
for a while; one that failed keeps its place. So a configuration that breaks hosts breaks as many as there are places,
and then the roll stands still by itself. A new configuration starts anew; so does a person who has looked.

A host whose Node is gone is bootstrapped again, with what is wanted now: it takes a place for that, too. When most
Nodes are gone at once, that is not for the Macs to mend, and none of them is touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.lifecycle import Phase, is_given_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.hosts.decide.lifecycle import Limits, Seen


_TOGETHER_MIN: Final = 3
"""Fewer Nodes that are gone at once are an accident."""


class Stand(StrEnum):
    """Where a host stands in the roll to the wanted configuration."""

    DONE = "done"
    CHANGING = "changing"
    """It may change, is changing, or has changed and is not proven yet."""
    FAILED = "failed"
    UNREACHED = "unreached"
    """Nobody could log in to bring it anything: it is tried again when there is a place, and halts nothing."""
    WAITING = "waiting"
    ASIDE = "aside"
    """It takes no part: it is paused, leaves, shows another key, or was never bootstrapped."""


@dataclass(frozen=True, slots=True)
class Member:
    """One host of the fleet."""

    name: str
    stand: Stand
    why: str = ""
    """What failed there, if it did."""
    gone: bool = False
    """Its Node is gone, and that is why it waits."""


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
    gone: frozenset[str] = frozenset()
    """Those who wait because their Node is gone."""
    vanished: str = ""
    """Why these may not begin, in the same way."""

    def held_back(self, name: str) -> str:
        """Say why a host that waits may not change now."""
        if self.vanished and name in self.gone:
            return self.vanished
        if self.halted:
            return self.halted
        busy = ", ".join((*self.changing, *self.failed)[:3])
        return f"{self.cap} at a time get the new configuration, and now it is the turn of {busy}"


def stand(seen: Seen, limits: Limits, *, begun: bool = False, gone: bool = False) -> Stand:
    """
    Say where a host stands. ``begun``: it was let go just now, and its status does not say so yet.

    ``gone``: its Node is, so it has to be bootstrapped again.
    """
    if _is_aside(seen):
        return Stand.ASIDE
    differs = seen.config_hash != seen.wanted_hash or seen.changed
    quiet = seen.phase in (Phase.READY, Phase.NOT_READY)
    if is_given_up(seen, limits) and (differs or not quiet):
        if seen.reached:
            return Stand.FAILED
        return Stand.CHANGING if begun else Stand.UNREACHED
    if begun or seen.phase in (Phase.UPDATING, Phase.DRAINING):
        return Stand.CHANGING
    if differs or (quiet and gone):
        return Stand.WAITING
    return Stand.DONE if quiet else Stand.CHANGING


def _is_aside(seen: Seen) -> bool:
    leaves = seen.deleting or seen.paused or seen.phase is Phase.RELEASING
    return leaves or seen.key_refused or not seen.config_hash


def roll(members: Iterable[Member], percent: int) -> Roll:
    """Say who may change. The answer does not depend on the order of the members."""
    in_order = sorted(members, key=lambda member: member.name)
    taking_part = [m for m in in_order if m.stand not in (Stand.ASIDE, Stand.UNREACHED)]
    cap = max(1, len(taking_part) * percent // 100)
    changing = tuple(m.name for m in taking_part if m.stand is Stand.CHANGING)
    failed = [m for m in taking_part if m.stand is Stand.FAILED]
    waiting = tuple(m.name for m in taking_part if m.stand is Stand.WAITING)
    places = max(0, cap - len(changing) - len(failed))
    halted = _halt(failed, cap) if waiting or failed else ""
    gone = frozenset(m.name for m in taking_part if m.gone and m.stand is Stand.WAITING)
    vanished = _vanish(len(gone), len(taking_part))
    able = [name for name in waiting if not (vanished and name in gone)]
    able += [m.name for m in in_order if m.stand is Stand.UNREACHED]
    new = () if halted else tuple(able[:places])
    # One that failed may try again when its time comes: it has its place.
    granted = frozenset((*changing, *new, *(m.name for m in failed)))
    names = tuple(m.name for m in failed)
    return Roll(cap, changing, names, waiting, granted, halted, gone, vanished)


def _vanish(gone: int, hosts: int) -> str:
    if gone < _TOGETHER_MIN or gone * 2 <= hosts:
        return ""
    return (
        f"the Nodes of {gone} of {hosts} hosts are gone at once, which is hardly the fault of each: nothing is done to"
        f" the hosts until their agents make their Nodes again, or a person asks for it"
    )


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
