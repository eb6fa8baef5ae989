"""
The retire gate of a roll: how runners of an older template make room for new ones. Pure.

It is driven by feedback: somebody new is asked to leave only while fewer than the cap are missing, not yet warm or
leaving already. No clock paces it; time only ends what waits too long.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.model.runner import Phase
from remuda.pools.decide.actions import Cause, MarkRunner, ReapRunner, UnmarkRunner
from remuda.pools.decide.counts import is_leaving, is_stale, is_unavailable
from remuda.pools.guards import Guards

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from remuda.model.pool import Pool
    from remuda.model.runner import Mark, Runner

MARK_DEADLINE = timedelta(seconds=120)
"""A marked runner polls dispatch within seconds. One that does not by then is taken away directly."""

VOID_SETTLE = timedelta(seconds=45)
"""
A runner polls at least every 30 s. One that was told to leave before its mark became void is gone by then; until then
it counts as leaving, or two rolls' worth of runners could be away at once. Dispatch ignores a void mark from the start.
"""

SKEW_MAX = timedelta(minutes=5)
"""By so much may the clock of another leader, who made a mark, be ahead of ours."""

RollAction = ReapRunner | MarkRunner | UnmarkRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """What the roll does now, and what it waits for."""

    actions: tuple[RollAction, ...] = ()
    waiting_since: datetime | None = None
    """Since when a replacement has been awaited: for the pool's status."""
    stuck: str = ""
    """Why it waits for too long and retires nobody else; empty while it goes well."""
    look_again_after: timedelta | None = None


def roll(
    pool: Pool,
    runners: Sequence[Runner],
    now: datetime,
    *,
    still_away: int = 0,
    guards: Guards | None = None,
) -> Roll:
    """
    Decide the roll's next step for the runners that the earlier steps left.

    ``still_away`` are those that left the budget only with the writes of this very pass.
    """
    on = guards or Guards()
    voided = _void_marks(pool, runners, now) if on.void_marks else ()
    expired = _expired(pool, runners, now)
    unavailable = _unavailable(pool, runners)
    waiting_since = _waiting_since(pool, runners, unavailable, now)
    late = waiting_since is not None and now - waiting_since >= pool.progress_deadline
    room = pool.roll_cap - unavailable - still_away if on.roll_cap else len(runners)
    retired = () if late or pool.paused else _retire(pool, runners, room)
    if waiting_since is None and retired and not pool.paused:
        waiting_since = now.replace(microsecond=0)
    return Roll(
        actions=(*voided, *expired, *retired),
        waiting_since=waiting_since,
        stuck=_blame(pool, runners) if late else "",
        look_again_after=_next_look(pool, runners, None if late else waiting_since, now),
    )


def _void_marks(pool: Pool, runners: Sequence[Runner], now: datetime) -> tuple[UnmarkRunner, ...]:
    return tuple(
        UnmarkRunner(r, why)
        for r in runners
        if (why := _void(pool, r)) and ((due := _void_due(r, now)) is None or now >= due)
    )


def _void_due(runner: Runner, now: datetime) -> datetime | None:
    """Return when a void mark may go; None: at once. A busy runner got a job, so it was not told to leave."""
    if runner.mark is None or runner.phase is Phase.BUSY:
        return None
    return _marked_at(runner.mark, now) + VOID_SETTLE


def _marked_at(mark: Mark, now: datetime) -> datetime:
    """Return when a mark was made. A time that no clock can have shown yet is no time: such a mark is over."""
    return mark.at if mark.at <= now + SKEW_MAX else now - MARK_DEADLINE


def _void(pool: Pool, runner: Runner) -> str:
    """Say why a mark no longer holds; empty if it does."""
    if runner.mark is None or not runner.is_alive or not runner.is_known:
        return ""
    if not is_stale(pool, runner):
        return "the roll was taken back: it is of the current template again"
    if runner.mark.target != pool.template:
        return "it was marked for a template that is no longer the pool's"
    if runner.phase is Phase.BUSY:
        return "it took a job before it could leave: it goes when the job ends"
    return ""


def _expired(pool: Pool, runners: Sequence[Runner], now: datetime) -> tuple[ReapRunner, ...]:
    """Return the marked runners that did not leave in time. They count as unavailable, so the budget allows it."""
    why = f"it was asked to leave for the roll and did not within {MARK_DEADLINE.seconds} s"
    return tuple(
        ReapRunner(r, Cause.ROLL, why)
        for r in runners
        if (due := _mark_due(pool, r, now)) is not None and now >= due
    )


def _mark_due(pool: Pool, runner: Runner, now: datetime) -> datetime | None:
    """Return when a mark that holds is over; None without one."""
    if runner.mark is None or not is_leaving(pool, runner) or not runner.is_known:
        return None
    if runner.mark.target != pool.template:
        return None
    return _marked_at(runner.mark, now) + MARK_DEADLINE


def _unavailable(pool: Pool, runners: Sequence[Runner]) -> int:
    # What is missing counts: with creates blocked, one that was replaced would make room for the next at once.
    missing = max(0, pool.replicas - sum(r.is_alive for r in runners))
    return missing + sum(is_unavailable(pool, r) for r in runners)


def _retire(
    pool: Pool, runners: Sequence[Runner], room: int
) -> tuple[ReapRunner | MarkRunner, ...]:
    """Return who goes next: those that serve nobody yet first, then the oldest warm ones."""
    candidates = sorted(
        (
            r
            for r in runners
            if is_stale(pool, r) and r.is_idle and r.is_known and not is_leaving(pool, r)
        ),
        key=lambda r: (r.phase is Phase.WARM, r.created_at, r.name),
    )
    return tuple(_replace(pool, r) for r in candidates[: max(0, room)])


def _replace(pool: Pool, runner: Runner) -> ReapRunner | MarkRunner:
    if runner.phase is Phase.WARM:
        return MarkRunner(runner, pool.template, f"the pool rolls to template {pool.template}")
    why = f"it never became warm and the pool rolls to template {pool.template}"
    return ReapRunner(runner, Cause.ROLL, why)


def _waiting_since(
    pool: Pool, runners: Sequence[Runner], unavailable: int, now: datetime
) -> datetime | None:
    """Return since when nothing has moved; None while nothing is awaited. A warm replacement is progress."""
    rolling = any(is_stale(pool, r) for r in runners)
    if not rolling or not unavailable or pool.paused:
        return None
    # Another leader's clock, and a host's, may run ahead of ours: nothing happened in the future.
    since = min(pool.roll_waiting_since or now, now.replace(microsecond=0))
    warmed = [r.warm_at for r in runners if r.is_alive and r.warm_at and not is_stale(pool, r)]
    return max([since, *(min(at, now) for at in warmed)])


def _blame(pool: Pool, runners: Sequence[Runner]) -> str:
    """Say what the roll waits for, without ages: the same trouble must read the same at every look."""
    waits = sorted(
        (r for r in runners if is_unavailable(pool, r)), key=lambda r: (r.created_at, r.name)
    )
    missing = max(0, pool.replicas - sum(r.is_alive for r in runners))
    if not waits:
        return f"{missing} of {pool.replicas} runners are missing"
    oldest = waits[0]
    if oldest.mark is not None or is_leaving(pool, oldest):
        return f"{oldest.name} was asked to leave and has not"
    if oldest.phase is Phase.WARM:
        return f"a person asked {oldest.name} to take no job, and it is still there"
    if oldest.node:
        return f"{oldest.name} on {oldest.node} does not become warm"
    because = f": {oldest.unschedulable_why}" if oldest.unschedulable_why else ""
    return f"{oldest.name} finds no host{because}"


def _next_look(
    pool: Pool, runners: Sequence[Runner], waiting_since: datetime | None, now: datetime
) -> timedelta | None:
    marks = [r for r in runners if r.mark is not None]
    dues = [due for r in marks if (due := _mark_due(pool, r, now)) is not None]
    dues += [due for r in marks if _void(pool, r) and (due := _void_due(r, now)) is not None]
    dues = [due for due in dues if due > now]
    if waiting_since is not None:
        dues.append(waiting_since + pool.progress_deadline)
    return min((due - now for due in dues), default=None)
