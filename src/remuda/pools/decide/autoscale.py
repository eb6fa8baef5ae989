"""
When a pool's replicas may follow what is wanted: up at once, down only after a whole cooldown of lower demand.

Pure. The memory of a pool goes in and comes out; the shell keeps it, and may lose it: a memory that does not reach back
over the whole cooldown only ever holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

GAP_MAX = timedelta(minutes=1)
"""How long nothing may be known of the demand before the memory starts anew."""
HIGHS_MAX = 64
"""How many levels of demand are remembered per pool."""


@dataclass(frozen=True, slots=True)
class High:
    """A level of demand, and until when it was last wanted."""

    replicas: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Memory:
    """What was wanted during the last cooldown. Only what later levels stay below is kept: enough for the highest."""

    since: datetime | None = None
    """From when on nothing was missed."""
    highs: tuple[High, ...] = ()
    """Falling levels, the newest last."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Write these replicas. On the way down, note the time too."""

    replicas: int
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave replicas as they are."""

    why: str


def autoscale(
    current: int,
    wanted: int,
    memory: Memory,
    *,
    last_scale_down_at: datetime | None,
    cooldown: timedelta,
    now: datetime,
) -> tuple[Scale | Hold, Memory]:
    """Decide on replicas, and remember what was wanted."""
    memory = _remember(memory, wanted, cooldown, now)
    if wanted > current:
        return Scale(wanted, f"demand rose: {wanted} runners are wanted, {current} were"), memory
    if wanted == current:
        return Hold("replicas are as wanted"), memory
    return _down(current, memory, last_scale_down_at, cooldown, now), memory


def _down(
    current: int, memory: Memory, last: datetime | None, cooldown: timedelta, now: datetime
) -> Scale | Hold:
    assert memory.since is not None
    if now - memory.since < cooldown:
        return Hold(f"demand is lower, but has not been watched for {_spell(cooldown)} yet")
    # A time ahead of ours was written by another clock, before the cooldown that we have watched since.
    if last is not None and timedelta(0) <= now - last < cooldown:
        return Hold(
            f"demand is lower, but the last scale-down was less than {_spell(cooldown)} ago"
        )
    highest = memory.highs[0].replicas
    if highest >= current:
        return Hold(f"demand is lower, but was not during all of the last {_spell(cooldown)}")
    return Scale(
        highest, f"at most {highest} runners were wanted during the last {_spell(cooldown)}"
    )


def _remember(memory: Memory, wanted: int, cooldown: timedelta, now: datetime) -> Memory:
    since, highs = memory.since, memory.highs
    if since is None or not timedelta(0) <= now - highs[-1].until <= GAP_MAX:
        return Memory(since=now, highs=(High(wanted, now),))
    horizon = now - cooldown
    # What was wanted last, was wanted until now.
    older = (*highs[:-1], replace(highs[-1], until=now))
    kept = tuple(h for h in older if h.replicas > wanted and h.until > horizon)
    # ``since`` moves along: levels from before it are forgotten, also if the cooldown becomes longer.
    return Memory(since=max(since, horizon), highs=_bounded((*kept, High(wanted, now))))


def _bounded(highs: tuple[High, ...]) -> tuple[High, ...]:
    """Join the two oldest levels when there are too many: the higher one then holds for longer."""
    if len(highs) <= HIGHS_MAX:
        return highs
    oldest, second, *rest = highs
    return (replace(oldest, until=second.until), *rest)


def _spell(time: timedelta) -> str:
    return f"{time.total_seconds():g} s"
