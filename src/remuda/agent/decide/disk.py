"""
Whether the host's disk is under pressure, whether to make room, and whether an image fits. Pure.

Each alarm has two marks, one to begin and a better one to end: a disk that hovers around a mark must not make the Node
flap. What cannot be measured changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskMarks:
    """Where alarms begin and end, as parts of a whole."""

    host_free_low: float = 0.10
    """Less free than this: DiskPressure."""
    host_free_ok: float = 0.12
    reclaim_below: float = 0.15
    """Less free than this: unused images go, before the scheduler has to be told."""
    reclaim_until: float = 0.20
    guest_used_high: float = 0.90
    """A guest this full will fail its job."""
    guest_used_ok: float = 0.85
    keep_free_bytes: int = 10 * _GIB
    """What must stay free beside an image that is fetched, for the VMs that run meanwhile."""
    unknown_image_bytes: int = 40 * _GIB
    """What an image is taken to need when nobody knows."""

    def __post_init__(self) -> None:
        assert 0 < self.host_free_low <= self.host_free_ok <= 1
        assert 0 < self.reclaim_below <= self.reclaim_until <= 1
        assert 0 < self.guest_used_ok <= self.guest_used_high <= 1


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """A file system, as measured."""

    free_bytes: int
    total_bytes: int

    @property
    def free_ratio(self) -> float | None:
        """None: it has no size, so nothing was measured."""
        return self.free_bytes / self.total_bytes if self.total_bytes > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState:
    """What holds until the next measurement."""

    host_low: bool = False
    reclaiming: bool = False
    full_guests: frozenset[str] = frozenset()

    @property
    def pressure(self) -> bool:
        return self.host_low or bool(self.full_guests)


def judge(
    before: DiskState,
    host: DiskSpace | None,
    guests: Mapping[str, float | None],
    marks: DiskMarks,
) -> DiskState:
    """Return what holds now. ``guests``: how full each running guest is; None where that could not be told."""
    free = host.free_ratio if host is not None else None
    return DiskState(
        host_low=_below(free, marks.host_free_low, marks.host_free_ok, before=before.host_low),
        reclaiming=_below(free, marks.reclaim_below, marks.reclaim_until, before=before.reclaiming),
        full_guests=frozenset(
            name
            for name, used in guests.items()
            if _above(
                used,
                marks.guest_used_high,
                marks.guest_used_ok,
                before=name in before.full_guests,
            )
        ),
    )


def why(state: DiskState, host: DiskSpace | None) -> str:
    """Return the sentence of the Node's condition."""
    free = host.free_ratio if host is not None else None
    shown = f"{free:.0%} of the host's disk is free" if free is not None else "the disk is unread"
    if not state.full_guests:
        return shown
    return f"{shown}; the disk of {', '.join(sorted(state.full_guests))} is nearly full"


@dataclass(frozen=True, slots=True)
class Short:
    """An image does not fit now."""

    by_bytes: int
    why: str


def admit(need_bytes: int | None, host: DiskSpace | None, marks: DiskMarks) -> Short | None:
    """Say whether an image may be fetched; None: it may. An unread disk refuses nothing: the fetch itself will tell."""
    if host is None or host.free_ratio is None:
        return None
    needed = need_bytes if need_bytes is not None else marks.unknown_image_bytes
    missing = needed + marks.keep_free_bytes - host.free_bytes
    if missing <= 0:
        return None
    return Short(
        missing,
        f"the image needs {_gib(needed)} and {_gib(marks.keep_free_bytes)} must stay free,"
        f" but only {_gib(host.free_bytes)} are free",
    )


def _below(value: float | None, begin: float, end: float, *, before: bool) -> bool:
    if value is None:
        return before
    return value < (end if before else begin)


def _above(value: float | None, begin: float, end: float, *, before: bool) -> bool:
    if value is None:
        return before
    return value >= begin or (before and value > end)


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
