"""
How many runners a roll took away at once, from every version that their Pods had. Pure.

A runner is away on the roll's account from the moment it is asked to leave until a replacement is warm. A pool in use
also lacks runners because jobs ended, or because one died; those are counted apart. Which new runner replaces whom is
nobody's decision: one of the template that the roll goes to fills a place that the roll made, if there is one, and one
of another template fills one of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.model.runner import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.model.runner import Runner

_READY = frozenset({Phase.WARM, Phase.BUSY})


@dataclass(frozen=True, slots=True)
class Sight:
    """One version of a runner."""

    version: int
    runner: Runner
    gone: bool = False
    """Its Pod was deleted; ``runner`` is as it last was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Most:
    """The most runners that were unavailable at once since a version."""

    by_roll: int = 0
    """Asked to leave, or gone for that and not replaced."""
    in_all: int = 0
    """Whatever the cause: jobs that ended and runners that died are among them."""


def most_unavailable(sights: Iterable[Sight], *, since: int, wanted: int) -> Most:
    """Go through everything that was seen, in its true order, and return the worst moments from ``since`` on."""
    ledger, most = _Ledger(), Most()
    for sight in sorted(sights, key=lambda s: s.version):
        ledger.take(sight)
        if sight.version >= since:
            most = Most(
                by_roll=max(most.by_roll, ledger.by_roll),
                in_all=max(most.in_all, wanted - ledger.available),
            )
    return most


@dataclass(slots=True)
class _Ledger:
    """Who is there, and which places are free on whose account."""

    there: dict[str, Runner] = field(default_factory=dict)
    was_ready: set[str] = field(default_factory=set)
    free_by_roll: int = 0
    free_otherwise: int = 0
    target: str = ""
    """The template that the roll goes to."""

    def take(self, sight: Sight) -> None:
        runner = sight.runner
        if sight.gone or not runner.is_alive:
            self._leaves(runner.uid)
            return
        if runner.phase in _READY and runner.uid not in self.was_ready:
            self.was_ready.add(runner.uid)
            self._fills(runner)
        if runner.mark is not None:
            self.target = runner.mark.target
        self.there[runner.uid] = runner

    def _fills(self, runner: Runner) -> None:
        """Take note that a place is filled; at the beginning none was free, as nobody was there before."""
        is_new = runner.template == self.target
        if self.free_by_roll and (is_new or not self.free_otherwise):
            self.free_by_roll -= 1
        elif self.free_otherwise:
            self.free_otherwise -= 1

    def _leaves(self, uid: str) -> None:
        last = self.there.pop(uid, None)
        if last is None or uid not in self.was_ready:
            return  # it left before, or it was never ready: then the place that it was for is free as before
        if _asked(last):
            self.free_by_roll += 1
        else:
            self.free_otherwise += 1

    @property
    def by_roll(self) -> int:
        return self.free_by_roll + sum(map(_asked, self.there.values()))

    @property
    def available(self) -> int:
        return sum(r.phase in _READY and not _asked(r) for r in self.there.values())


def _asked(runner: Runner) -> bool:
    """Tell whether the roll asked a runner to leave; one that got a job before it could does not leave."""
    return runner.mark is not None and runner.phase is not Phase.BUSY
