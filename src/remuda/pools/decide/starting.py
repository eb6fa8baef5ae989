"""Which starts took too long. A start is timed from its host, a wait for a host from when it began. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.model.runner import Phase
from remuda.pools.decide.actions import Cause, ReapRunner

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    from remuda.model.pool import Pool
    from remuda.model.runner import Runner


def overdue(pool: Pool, runners: Iterable[Runner], now: datetime) -> tuple[ReapRunner, ...]:
    """Return the starts to give up. They hold a slot of the whole fleet, so none may last for ever."""
    if pool.start_timeout is None:
        return ()
    return tuple(
        _give_up(runner, pool.start_timeout)
        for runner in runners
        if _is_timed(runner) and now >= _clock(runner) + pool.start_timeout
    )


def next_deadline(pool: Pool, runners: Iterable[Runner], now: datetime) -> timedelta | None:
    """Return after how long the next start is overdue."""
    timeout = pool.start_timeout
    if timeout is None:
        return None
    waits = (_clock(r) + timeout - now for r in runners if _is_timed(r))
    return min(waits, default=None)


def _is_timed(runner: Runner) -> bool:
    return runner.phase is Phase.STARTING and runner.is_alive and runner.is_known


def _clock(runner: Runner) -> datetime:
    """Return since when the runner has been in its present trouble."""
    if runner.node or runner.bound_at is not None:
        bound_at = runner.bound_at or runner.created_at
        # A warm runner whose host went quiet for a moment was bound long ago: it gets a whole new deadline.
        return max(bound_at, runner.unready_since or bound_at)
    # Neither bound nor called unschedulable: the scheduler never looked. That too must end.
    return runner.unschedulable_since or runner.created_at


def _give_up(runner: Runner, timeout: timedelta) -> ReapRunner:
    limit = f"{timeout.total_seconds():.0f} s"
    if runner.node or runner.bound_at is not None:
        where = f" on {runner.node}" if runner.node else ""
        return ReapRunner(
            runner, Cause.START_TIMEOUT, f"it did not become warm{where} within {limit}"
        )
    because = f": {runner.unschedulable_why}" if runner.unschedulable_why else ""
    return ReapRunner(runner, Cause.UNSCHEDULABLE, f"no host took it within {limit}{because}")
