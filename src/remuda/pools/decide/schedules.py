"""
Which ``minWarm`` is in force now: that of the pool, or of a schedule that has begun and not ended.

Pure but for one thing: the rules of a time zone are read from the zone database when it is first named.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

if TYPE_CHECKING:
    from remuda.kube.runner_pool import Autoscaling, Schedule

REMEMBERED = 4096
"""Firings that are kept: every pool is asked about every 5 s, and within one minute the answer is the same."""

_FIELDS = 5
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class FloorNow:
    """The idle runners to keep at this moment."""

    min_warm: int
    why: str
    faults: tuple[str, ...] = ()
    """Schedules that cannot be read, a sentence each. They are left out."""


@dataclass(frozen=True, slots=True)
class _Fired:
    at: datetime | None = None
    fault: str = ""


def min_warm_at(autoscaling: Autoscaling, now: datetime) -> FloorNow:
    """Return the largest ``minWarm`` of the schedules in force, or the pool's own outside of all of them."""
    in_order = sorted(autoscaling.schedules, key=lambda s: s.name)
    fired = [(schedule, _last_fired(schedule, now)) for schedule in in_order]
    in_force = [s for s, f in fired if f.at and now < f.at + timedelta(seconds=s.duration_seconds)]
    faults = tuple(f"schedule {s.name}: {f.fault}" for s, f in fired if f.fault)
    if not in_force:
        return FloorNow(autoscaling.min_warm, "minWarm of the pool", faults)
    widest = max(in_force, key=lambda s: s.min_warm)
    return FloorNow(widest.min_warm, f"minWarm of schedule {widest.name}", faults)


def _last_fired(schedule: Schedule, now: datetime) -> _Fired:
    minute = now.astimezone(UTC).replace(second=0, microsecond=0)
    return _fired_by(schedule.cron, schedule.time_zone, minute)


@lru_cache(maxsize=REMEMBERED)
def _fired_by(cron: str, time_zone: str, minute: datetime) -> _Fired:
    zone = _zone(time_zone)
    if zone is None:
        return _Fired(fault=f"there is no time zone {time_zone!r}")
    if len(cron.split()) != _FIELDS:
        return _Fired(fault=f"{cron!r} has not five fields")
    try:
        return _Fired(at=_last_firing(cron, zone, minute))
    except CronSimError as error:
        return _Fired(fault=f"{cron!r} cannot be read: {error}")


def _last_firing(cron: str, zone: ZoneInfo, minute: datetime) -> datetime | None:
    """Return the last firing at or before this minute, None if there was none in half a century."""
    local = minute.astimezone(zone)
    # While the clock shows an hour for the second time, all that fires at a fixed time in it has fired already, the
    # first time. cronsim searches by the face of the clock, so the search must begin after that hour.
    begin = local + (_offset(local.replace(fold=0)) - _offset(local))
    # cronsim leaves out the very moment at which it begins.
    for firing in CronSim(cron, begin + _TICK, reverse=True):
        if firing.astimezone(UTC) <= minute:
            return firing.astimezone(UTC)
    return None


def _offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None
    return offset


@lru_cache(maxsize=REMEMBERED)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, no zone file, or a folder of zones
        return None
