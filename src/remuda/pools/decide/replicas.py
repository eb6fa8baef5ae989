"""Keep as many runners as the pool wants: fill the gap, or take away idle ones. Never both. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.model.runner import Phase
from remuda.pools.decide import trial
from remuda.pools.decide.actions import Cause, CreateRunner, ReapRunner
from remuda.pools.decide.counts import is_leaving, is_stale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.model.pool import Pool
    from remuda.model.runner import Runner
    from remuda.pools.decide.brake import Blocked, Slots


@dataclass(frozen=True, slots=True)
class Filling:
    """The runners to make, and why not as many as are missing."""

    creates: tuple[CreateRunner, ...] = ()
    blocked: Blocked = ""


def fill(
    pool: Pool, runners: Sequence[Runner], slots: Slots, *, falls_back: bool = False
) -> Filling:
    """Return the runners to make: at most the gap, at most the free slots. Those that are known to work come first."""
    alive = sum(r.is_alive for r in runners)
    gap = pool.replicas - alive
    if gap <= 0 or pool.deleting:
        return Filling()
    made = (
        trial.split(pool, runners, gap, slots)
        if falls_back
        else trial.Shares(current=min(gap, max(0, slots.free)))
    )
    blocked: Blocked = "" if made.total == gap else slots.blocked or "fleet_cap"
    why = f"{pool.name} has {alive} of {pool.replicas} runners"
    because = f"{why}; {pool.template} is on trial, and {pool.proven} is the last that worked"
    proven = (CreateRunner(pool.proven, because),) * made.proven
    return Filling((*proven, *(CreateRunner(pool.template, why),) * made.current), blocked)


def shrink(pool: Pool, runners: Sequence[Runner]) -> tuple[ReapRunner, ...]:
    """Return the idle runners that are too many, the least useful first. A busy one stays: its job ends by itself."""
    surplus = sum(r.is_alive for r in runners) - pool.replicas
    if surplus <= 0:
        return ()
    unproven = trial.can_fall_back(pool) and not trial.has_worked(pool, runners)
    spare = sorted(
        (r for r in runners if r.is_idle),
        key=lambda r: (_usefulness(pool, r, unproven), -r.created_at.timestamp(), r.name),
    )
    why = f"{pool.name} wants {pool.replicas} runners"
    # One that is not confirmed yet keeps its place in the order: it goes once it can be named, and no warm one for it.
    return tuple(
        ReapRunner(r, Cause.SCALE_DOWN, f"{why}; {_what(pool, r)}")
        for r in spare[:surplus]
        if r.is_known
    )


def _usefulness(pool: Pool, runner: Runner, unproven: bool) -> int:  # noqa: FBT001 - one of the ranks' inputs
    """
    Rank a runner for staying: old templates go before new ones, cold runners before warm ones.

    What is on trial may never become warm: of an unproven template, cold runners go before any that serves.
    """
    if is_leaving(pool, runner) or runner.drain:
        return 0
    warm = runner.phase is Phase.WARM
    if is_stale(pool, runner):
        return 4 if warm else 1
    if warm:
        return 7
    return (2 if unproven else 5) + bool(runner.node)


def _what(pool: Pool, runner: Runner) -> str:
    if is_leaving(pool, runner) or runner.drain:
        return "this one was leaving already"
    template = "an older template" if is_stale(pool, runner) else "the current template"
    warmth = "warm" if runner.phase is Phase.WARM else "not warm yet"
    return f"this one is idle, {warmth} and of {template}"
