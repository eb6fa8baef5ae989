"""
A template on trial: until a runner of it became warm, nobody knows that it works. Pure.

Runners are single-use, so every job that ends asks for a new one. If all of those were made from a bad template, jobs
would take down what the roll's cap protects. So only as many as the cap try it, and the others are made from the last
template that worked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.model.runner import Phase
from remuda.pools.decide.counts import is_stale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.model.pool import Pool
    from remuda.model.runner import Runner
    from remuda.pools.decide.brake import Slots


def can_fall_back(pool: Pool) -> bool:
    """Say whether there is another template that worked. A new pool has none."""
    return pool.proven not in ("", pool.template)


def has_worked(pool: Pool, runners: Sequence[Runner]) -> bool:
    """Say whether the pool's template is proven: it is remembered, or one of its runners serves."""
    if pool.proven == pool.template:
        return True
    return any(r.phase in (Phase.WARM, Phase.BUSY) and _is_current(pool, r) for r in runners)


def is_worth_remembering(pool: Pool, runners: Sequence[Runner]) -> bool:
    """
    Say whether the pool's template should become the one to fall back on.

    Not before its roll is through: one that boots now and then gets its roll stuck, and then what worked before is what
    is needed. Where there is nothing to lose it is remembered at once.
    """
    if pool.deleting or pool.proven == pool.template or not has_worked(pool, runners):
        return False
    return not pool.proven or not any(is_stale(pool, r) for r in runners)


@dataclass(frozen=True, slots=True)
class Shares:
    """How many runners to make from which template."""

    current: int
    proven: int = 0

    @property
    def total(self) -> int:
        return self.current + self.proven


def split(pool: Pool, runners: Sequence[Runner], gap: int, slots: Slots) -> Shares:
    """
    Share the missing runners out: at most the cap tries, counting those that start already; the rest is of what works.

    Starts that hang hold their slots for the whole of the start deadline. So what works is served first, and half of
    the fleet's slots are kept for it; but one runner always tries, or a busy fleet would never see the new template.
    """
    trying = sum(r.phase is Phase.STARTING and _is_current(pool, r) for r in runners)
    current = min(gap, max(0, pool.roll_cap - trying))
    free = max(0, slots.free)
    kept = 0 if slots.most is None else slots.most // 2
    # With a single slot the one that tries would hold it again and again.
    first = min(1, current, free) if not trying and slots.most != 1 else 0
    proven = min(gap - current, free - first)
    others = min(current - first, max(0, free - first - proven - kept))
    return Shares(current=first + others, proven=proven)


def _is_current(pool: Pool, runner: Runner) -> bool:
    return runner.is_alive and runner.template == pool.template
