"""What was seen of a fleet, and what the top of the screen says of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.cli.tables import duration, plain
from remuda.cli.top.decide.lines import Line, Span, Tone, apart, filled, joined
from remuda.kube.names import VM
from remuda.model.job import JobState

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.ports.api import Event, HostRow, JobRow, PoolRow, RunnerRow

STALE_LOOKS: Final = 3
"""Data that is older than so many looks is stale, whatever the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """One look at a fleet."""

    not_ready: str = ""
    """Why the server cannot serve now; empty if it can."""
    pools: tuple[PoolRow, ...] = ()
    runners: tuple[RunnerRow, ...] = ()
    hosts: tuple[HostRow, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    """Those that are not over, and some that are."""
    is_cut: bool = False
    """Whether there are more jobs than were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The last look that succeeded, what happened meanwhile, and what is wrong with looking."""

    address: str
    every_s: float
    fleet: Fleet | None = None
    seen_at: float = 0.0
    """When that look was, on the clock that only grows."""
    trouble: str = ""
    """Why the looks since then failed; empty if none did."""
    events: tuple[Event, ...] = ()
    """The newest last."""
    polls: bool = False
    """Whether events are asked for now and then, because they cannot be followed."""

    def age_s(self, now_s: float) -> float:
        return max(now_s - self.seen_at, 0.0)

    def is_stale(self, now_s: float) -> bool:
        return bool(self.trouble) or self.age_s(now_s) > STALE_LOOKS * self.every_s


def slots(hosts: tuple[HostRow, ...]) -> tuple[int, int]:
    """Return how many VM slots are used, and how many there are."""
    return sum(host.runners for host in hosts), sum(slots_of(host) for host in hosts)


def slots_of(host: HostRow) -> int:
    said = host.allocatable.get(VM, "")
    return int(said) if said.isdigit() else 0


def head(sight: Sight, *, now: datetime, now_s: float, width: int) -> tuple[Line, ...]:
    """Return the lines above the panes: where and how the fleet is, in numbers, and what is wrong."""
    lines = [_first(sight, now_s, width), filled((Span(" "), *_counts(sight.fleet, now)), width)]
    if wrong := _wrong(sight):
        lines.append(filled((Span(wrong, Tone.BAD),), width))
    return tuple(lines)


def _first(sight: Sight, now_s: float, width: int) -> Line:
    name: Line = (
        Span(" remuda top", Tone.STRONG),
        Span(f"  {plain(sight.address)}  "),
        _health(sight),
    )
    return apart(name, (_age(sight, now_s), Span(" ")), width)


def _health(sight: Sight) -> Span:
    if sight.fleet is None:
        return Span("○ asking", Tone.UNSURE) if not sight.trouble else Span("○ away", Tone.BAD)
    if sight.trouble:
        return Span("○ lost", Tone.BAD)
    return Span("○ not ready", Tone.BAD) if sight.fleet.not_ready else Span("● healthy", Tone.GOOD)


def _age(sight: Sight, now_s: float) -> Span:
    if sight.fleet is None:
        return Span("no data yet", Tone.UNSURE)
    old = duration(sight.age_s(now_s))
    if sight.is_stale(now_s):
        return Span(f"STALE, {old} old", Tone.BAD)
    return Span(f"{old} old", Tone.QUIET)


def _wrong(sight: Sight) -> str:
    if sight.trouble:
        return f" ! {plain(sight.trouble)}; it is asked again until it answers"
    if sight.fleet is not None and sight.fleet.not_ready:
        return f" ! {plain(sight.fleet.not_ready)}"
    return ""


def _counts(fleet: Fleet | None, now: datetime) -> Line:
    if fleet is None:
        return ()
    states = Counter(job.state for job in fleet.jobs)
    more = "+" if fleet.is_cut else ""
    running = states[JobState.RUNNING] + states[JobState.CLAIMED]
    phases = Counter(runner.pod.phase for runner in fleet.runners if runner.pod is not None)
    used, room = slots(fleet.hosts)
    well = sum(host.healthy for host in fleet.hosts)
    return joined(
        [
            _count("queued", f"{states[JobState.QUEUED]}{more}", _oldest(fleet, now)),
            _count("running", str(running)),
            _count("warm", str(phases["warm"])),
            _count("starting", str(phases["starting"])),
            _count("hosts", f"{well}/{len(fleet.hosts)}"),
            _count("slots", f"{used}/{room}"),
        ]
    )


def _count(what: str, number: str, note: str = "") -> Line:
    return (Span(f"{what} "), Span(number, Tone.STRONG), *((Span(f" ({note})"),) if note else ()))


def _oldest(fleet: Fleet, now: datetime) -> str:
    waiting = [job.queued_at for job in fleet.jobs if job.state is JobState.QUEUED]
    return f"since {duration((now - min(waiting)).total_seconds())}" if waiting else ""
