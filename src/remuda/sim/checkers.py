"""
What must hold, watched from outside: the checkers see the store, never the controllers' own opinion.

Safety is looked at on every change, while everything fails. Liveness is demanded once the faults have stopped: the
world reaches what it should be, stays so, and nobody writes any more. A checker must not change anything.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from remuda.sim.link import WRITER
from remuda.sim.trace import Trace, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.standalone.store import StoredEvent

VIOLATIONS_MAX = 20
"""After so many the run ends: one broken guard can trip on every event, and the first is what counts."""

QUIET_LOOK_S = 5.0
"""How often to look whether what was reached is kept."""

WORLD = "world"
"""The actor that the trace names for what nobody in the world did."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold: what, when, at which event, and how to see it again."""

    invariant: str
    at_s: float
    what: str
    event: str
    seed: int
    replay: str

    def __str__(self) -> str:
        at = f"{stamp(self.at_s)} (seed {self.seed})"
        return f"{self.invariant} violated at {at}: {self.what}\n  event: {self.event}\n  replay: {self.replay}"


@dataclass(frozen=True, slots=True)
class Observed:
    """One committed change, by whom it was asked for, and when it really happened."""

    at_s: float
    writer: str
    event: StoredEvent

    @property
    def plural(self) -> str:
        return self.event.kind[1]

    def __str__(self) -> str:
        place = f"{self.plural}/{self.event.key}"
        return f"{self.writer or WORLD} {self.event.change.lower()} {place} at revision {self.event.revision}"


def _is_expiry(change: Observed) -> bool:
    """Say whether the control plane only forgot an old Event, as it does with each after an hour."""
    return change.plural == "events" and change.event.change == "DELETED" and not change.writer


class Safety(Protocol):
    """Holds at every instant."""

    invariant: str
    """Its name in INVARIANTS, such as ``S8 fencing``."""

    def look(self, change: Observed) -> str | None:
        """Take in one change; return what is wrong, if anything is."""
        ...


class Liveness(Protocol):
    """Holds in the end."""

    invariant: str

    def look(self) -> str | None:
        """Return what is not yet as it should be, if anything is."""
        ...


@dataclass(slots=True)
class Verdict:
    """What the checkers found so far."""

    seed: int
    replay: str
    trace: Trace
    violations: list[Violation] = field(default_factory=list)
    checks: int = 0
    enough: int = VIOLATIONS_MAX
    """After how many the run ends."""
    on_enough: Callable[[], object] = lambda: None
    """Called when there is no point in going on."""

    def violated(self, invariant: str, what: str, event: str, at_s: float) -> None:
        if len(self.violations) == self.enough:
            return
        found = Violation(invariant, at_s, what, event, self.seed, self.replay)
        self.violations.append(found)
        self.trace.note(WORLD, "violation", "-", invariant, what)
        if len(self.violations) == self.enough:
            self.on_enough()


class Fencing:
    """Only the holder of the Lease writes, and only while it lasts. Leases themselves are anybody's to try for."""

    invariant = "S8 fencing"

    def __init__(self, lease: str, controllers: tuple[str, ...]) -> None:
        self._lease, self._controllers = lease, controllers
        self._holder = ""
        self._lasts_until = 0.0

    def look(self, change: Observed) -> str | None:
        if change.plural == "leases":
            if change.event.key == self._lease:
                spec = change.event.object["spec"]
                self._holder = str(spec.get("holderIdentity") or "")
                # True time: the clocks of the actors may be wrong, and the checker must not share their error.
                self._lasts_until = change.at_s + float(spec["leaseDurationSeconds"])
            return None
        if change.writer not in self._controllers:
            return None
        if self._holder.split("_")[0] != change.writer:
            return f"{change.writer} wrote, but the lease is {self._holder or 'nobody'}'s"
        if change.at_s > self._lasts_until:
            late_s = change.at_s - self._lasts_until
            return f"{change.writer} wrote {late_s:.1f} s after its lease ran out"
        return None


class Checkers:
    """Runs the checkers of one world."""

    def __init__(self, verdict: Verdict, write_calls: Callable[[], int]) -> None:
        self._verdict = verdict
        self._write_calls = write_calls
        self._safety: tuple[Safety, ...] = ()
        self._writes = 0
        self._last_write = ""

    def add(self, *safety: Safety) -> None:
        self._safety += safety

    def on_change(self, event: StoredEvent) -> None:
        """Take a change from the store, in the very turn in which it was committed."""
        is_lease = event.kind[1] == "leases"
        if is_lease and not self._safety:
            return  # most of what is written in a large world, and nobody asks
        change = Observed(asyncio.get_running_loop().time(), WRITER.get(), event)
        if not is_lease and not _is_expiry(change):
            self._writes += 1
            self._last_write = str(change)
        for checker in self._safety:
            self._verdict.checks += 1
            if (wrong := checker.look(change)) is not None:
                self._verdict.violated(checker.invariant, wrong, str(change), change.at_s)

    async def settle(
        self,
        liveness: Sequence[Liveness],
        *,
        within_s: float,
        quiet_s: float,
        linger_s: float | None = None,
    ) -> None:
        """
        Demand, now that the faults have stopped, what liveness promises.

        Within ``within_s`` everything is as it should be. After ``linger_s`` more (as long again, if it is not given)
        it stays so for ``quiet_s``, and no write but of leases is even tried.
        """
        now = asyncio.get_running_loop().time
        started = now()
        while any(checker.look() for checker in liveness):
            if now() - started >= within_s:
                self._report_all(liveness, f"not reached within {within_s:g} s of calm")
                return
            await asyncio.sleep(1)
        self._verdict.trace.note(
            WORLD, "converged", "-", "ok", f"{now() - started:.0f} s after the faults stopped"
        )
        # The last writes may still be under way.
        await asyncio.sleep(within_s if linger_s is None else linger_s)
        await self._stay_quiet(liveness, quiet_s)

    async def _stay_quiet(self, liveness: Sequence[Liveness], quiet_s: float) -> None:
        now = asyncio.get_running_loop().time
        writes, calls, ends = self._writes, self._write_calls(), now() + quiet_s
        while now() < ends:
            await asyncio.sleep(QUIET_LOOK_S)
            if any(checker.look() for checker in liveness):
                self._report_all(liveness, "reached, but not kept")
                return
        tried = self._write_calls() - calls
        if self._writes > writes or tried:
            what = f"{self._writes - writes} writes and {tried} tries in {quiet_s:g} s of calm"
            self._verdict.violated("V8 quiet", what, self._last_write, now())
            return
        self._verdict.trace.note(WORLD, "quiet", "-", "ok", f"no write in {quiet_s:g} s but leases")

    def _report_all(self, liveness: Sequence[Liveness], when: str) -> None:
        at_s = asyncio.get_running_loop().time()
        for checker in liveness:
            self._verdict.checks += 1
            if (wrong := checker.look()) is not None:
                self._verdict.violated(
                    checker.invariant, f"{wrong}; {when}", self._last_write, at_s
                )
