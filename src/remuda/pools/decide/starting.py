"""
Which starts took too long. A start is timed from its host, a wait for a host from when it began. Pure.

The times in Pods were written by the clocks of others. Ours may be minutes ahead of them, and to believe them then
would end every start as it begins. So what counts is how long we have watched ourselves. What began before we led is
believed, less what clocks may differ by.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.model.runner import Phase
from remuda.pools.decide.actions import Cause, ReapRunner

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.model.pool import Pool
    from remuda.model.runner import Runner

SKEW_MAX = timedelta(minutes=5)
"""By so much may two machines' clocks differ."""

Watched = Mapping[str, timedelta]
"""How long we have seen runners in the trouble that they are in (see ``since``), by UID. None: all clocks are one."""

_NOT_YET = timedelta(0)


def overdue(
    pool: Pool, runners: Iterable[Runner], now: datetime, watched: Watched | None = None
) -> tuple[ReapRunner, ...]:
    """Return the starts to give up. They hold a slot of the whole fleet, so none may last for ever."""
    timeout = pool.start_timeout
    if timeout is None:
        return ()
    return tuple(
        _give_up(runner, timeout)
        for runner in runners
        if is_timed(runner) and _lasted(runner, now, watched) >= timeout
    )


def next_deadline(
    pool: Pool, runners: Iterable[Runner], now: datetime, watched: Watched | None = None
) -> timedelta | None:
    """Return after how long the next start is overdue."""
    timeout = pool.start_timeout
    if timeout is None:
        return None
    waits = (timeout - _lasted(r, now, watched) for r in runners if is_timed(r))
    return min(waits, default=None)


def is_timed(runner: Runner) -> bool:
    """Say whether a runner is starting, so that a deadline may end it."""
    return runner.phase is Phase.STARTING and runner.is_alive and runner.is_known


def since(runner: Runner) -> datetime:
    """Return since when the runner has been in its present trouble, by the clock of whoever wrote it down."""
    if runner.node or runner.bound_at is not None:
        bound_at = runner.bound_at or runner.created_at
        # A warm runner whose host went quiet for a moment was bound long ago: it gets a whole new deadline.
        return max(bound_at, runner.unready_since or bound_at)
    # Neither bound nor called unschedulable: the scheduler never looked. That too must end.
    return runner.unschedulable_since or runner.created_at


def _lasted(runner: Runner, now: datetime, watched: Watched | None) -> timedelta:
    told = now - since(runner)
    return told if watched is None else max(watched.get(runner.uid, _NOT_YET), told - SKEW_MAX)


def _give_up(runner: Runner, timeout: timedelta) -> ReapRunner:
    limit = f"{timeout.total_seconds():.0f} s"
    if runner.node or runner.bound_at is not None:
        where = f" on {runner.node}" if runner.node else ""
        return ReapRunner(
            runner, Cause.START_TIMEOUT, f"it did not become warm{where} within {limit}"
        )
    because = f": {runner.unschedulable_why}" if runner.unschedulable_why else ""
    return ReapRunner(runner, Cause.UNSCHEDULABLE, f"no host took it within {limit}{because}")
