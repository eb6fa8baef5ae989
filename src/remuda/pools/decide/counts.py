"""Count a pool's runners, as status, metrics and the roll's budget see them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.model.runner import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.model.pool import Pool
    from remuda.model.runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many runners are in which state. ``stale`` and ``marked`` overlap with the states of life."""

    alive: int = 0
    warm: int = 0
    """Runners that could take a job now."""
    busy: int = 0
    starting: int = 0
    stale: int = 0
    """Live runners of another template, busy ones included."""
    terminating: int = 0
    ended: int = 0
    missing: int = 0
    marked: int = 0
    """Idle stale runners that were asked to leave."""
    unavailable: int = 0
    """Missing, or current and not yet able to serve, or asked to leave: what the roll's cap bounds."""
    roll_cap: int = 1
    oldest_starting_age_s: float = 0.0
    oldest_terminating_age_s: float = 0.0


def count(pool: Pool, runners: Iterable[Runner], now: datetime) -> Counts:
    """Count the runners of one pool."""
    everyone = tuple(runners)
    alive = [r for r in everyone if r.is_alive]
    starting = [r for r in alive if r.phase is Phase.STARTING]
    terminating = [r.deleting_since for r in everyone if r.deleting_since is not None]
    missing = 0 if pool.deleting else max(0, pool.replicas - len(alive))
    return Counts(
        alive=len(alive),
        warm=sum(can_serve(pool, r) for r in alive),
        busy=sum(r.phase is Phase.BUSY for r in alive),
        starting=len(starting),
        stale=sum(is_stale(pool, r) for r in alive),
        terminating=len(terminating),
        ended=sum(r.phase is Phase.ENDED and r.deleting_since is None for r in everyone),
        missing=missing,
        marked=sum(is_leaving(pool, r) for r in alive),
        unavailable=missing + sum(is_unavailable(pool, r) for r in alive),
        roll_cap=pool.roll_cap,
        oldest_starting_age_s=_oldest((r.created_at for r in starting), now),
        oldest_terminating_age_s=_oldest(terminating, now),
    )


def is_stale(pool: Pool, runner: Runner) -> bool:
    """Say whether a live runner is of another template than the pool's."""
    return runner.template != pool.template and runner.is_alive


def is_leaving(pool: Pool, runner: Runner) -> bool:
    """Say whether an idle stale runner was asked to leave."""
    asked = runner.mark is not None or runner.drain
    return asked and runner.is_idle and is_stale(pool, runner)


def can_serve(pool: Pool, runner: Runner) -> bool:
    """Say whether a runner could take a job now."""
    if runner.phase is not Phase.WARM or runner.drain or not runner.is_alive:
        return False
    # Dispatch ignores a mark on a runner of the current template: it is a leftover of a roll that was taken back.
    return not is_leaving(pool, runner)


def is_unavailable(pool: Pool, runner: Runner) -> bool:
    """
    Say whether a live runner takes from the roll's budget.

    Any mark counts until it is taken away, a void one too: dispatch may have answered it before the target changed,
    and the runner is on its way out. A stale one that never became warm does not count: replacing it costs nobody a
    warm runner, and if it did, runners of a broken template would hold the whole budget of the roll that mends them.
    """
    if not runner.is_idle:
        return False
    if runner.mark is not None:
        return True
    if is_stale(pool, runner):
        return is_leaving(pool, runner)
    return not can_serve(pool, runner)


def _oldest(times: Iterable[datetime], now: datetime) -> float:
    oldest = min(times, default=now)
    return max(0.0, (now - oldest).total_seconds())
