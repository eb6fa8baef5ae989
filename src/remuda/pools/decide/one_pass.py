"""Decide what one pool needs next, all worries in their order. Pure: what was seen and the time come in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.pools.decide import conditions, drain, reaping, replicas, rollout, starting, trial
from remuda.pools.decide.actions import ReapRunner
from remuda.pools.decide.counts import count, is_unavailable
from remuda.pools.guards import Guards

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.model.pool import Pool
    from remuda.model.runner import Runner
    from remuda.pools.decide.actions import Action
    from remuda.pools.decide.brake import Blocked, Slots
    from remuda.pools.decide.conditions import Wanted
    from remuda.pools.decide.counts import Counts
    from remuda.pools.decide.starting import Watched

BLOCKED_RETRY = timedelta(seconds=5)
"""A slot is freed by a sibling, or a node comes back: neither is an event of this pool."""
SOON = timedelta(seconds=1)
"""A deadline that passed while nothing could be done about it is looked at again, but not in a tight loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a pool's decision needs to know of the world around it."""

    slots: Slots
    draining_nodes: frozenset[str] = frozenset()
    pool_conflict: str = ""
    """Which older pool serves the same labels, as a sentence."""
    watched: Watched | None = None
    """How long we have seen starting runners in the trouble that they are in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, and what to say about the pool."""

    actions: tuple[Action, ...] = ()
    counts: Counts
    """As seen, before the actions."""
    roll_waiting_since: datetime | None = None
    conditions: tuple[Wanted, ...] = ()
    blocked: Blocked = ""
    """Why not all missing runners are made."""
    worked: bool = False
    """The pool's template is now the last one that worked: worth remembering."""
    look_again_after: timedelta | None = None


def decide(
    pool: Pool,
    runners: Iterable[Runner],
    around: Surroundings,
    now: datetime,
    *,
    guards: Guards | None = None,
) -> Decision:
    """Return the next step of one pool. The answer does not depend on the order of ``runners``."""
    in_order = tuple(sorted(runners, key=lambda r: (r.created_at, r.name)))
    if pool.deleting:
        return _deleted(pool, in_order, around, now)
    return _kept(pool, in_order, around, now, guards or Guards())


def _deleted(
    pool: Pool, runners: tuple[Runner, ...], around: Surroundings, now: datetime
) -> Decision:
    leaving = drain.drain_pool(runners, now)
    counts = count(pool, runners, now)
    return Decision(
        actions=leaving.actions,
        counts=counts,
        conditions=(
            conditions.ready(pool, counts, runners),
            conditions.rolling(pool, counts, ""),
            conditions.draining(pool, leaving.busy, leaving.terminating),
            conditions.degraded(pool, "", ""),
            conditions.labels_conflict(around.pool_conflict),
        ),
        look_again_after=_soonest(leaving.look_again_after),
    )


def _kept(
    pool: Pool, runners: tuple[Runner, ...], around: Surroundings, now: datetime, guards: Guards
) -> Decision:
    ended = reaping.ended(runners, deletion_first=guards.deletion_first)
    left = _without(runners, ended)
    overdue = starting.overdue(pool, left, now, around.watched)
    left = _without(left, overdue)
    drained = drain.off_nodes(left, around.draining_nodes)
    left = _without(left, drained)
    surplus = replicas.shrink(pool, left)
    left = _without(left, surplus)
    # One that leaves keeps its share of the roll's budget too: it may have left long ago, unseen and not replaced.
    still_away = sum(is_unavailable(pool, reap.runner) for reap in surplus)
    roll = rollout.roll(pool, left, now, still_away=still_away, guards=guards)
    left = _without(left, tuple(a for a in roll.actions if isinstance(a, ReapRunner)))
    # A runner keeps its place until its deletion is accepted: a job may take it first, and its successor would be
    # one too many. So what is reaped alive is replaced in the next pass.
    unproven = bool(roll.stuck) or not trial.has_worked(pool, runners)
    falls_back = guards.fallback and unproven and trial.can_fall_back(pool)
    filling = replicas.fill(pool, runners, around.slots, falls_back=falls_back)
    counts = count(pool, runners, now)
    return Decision(
        actions=(*ended, *overdue, *drained, *surplus, *roll.actions, *filling.creates),
        counts=counts,
        roll_waiting_since=roll.waiting_since,
        conditions=(
            conditions.ready(pool, counts, runners),
            conditions.rolling(pool, counts, roll.stuck),
            conditions.draining(pool),
            conditions.degraded(pool, roll.stuck, filling.blocked),
            conditions.labels_conflict(around.pool_conflict),
        ),
        blocked=filling.blocked,
        worked=trial.is_worth_remembering(pool, runners),
        look_again_after=_soonest(
            starting.next_deadline(pool, left, now, around.watched),
            roll.look_again_after,
            BLOCKED_RETRY if filling.blocked else None,
            SOON if len(left) < len(runners) - len(ended) else None,
        ),
    )


def _without(runners: tuple[Runner, ...], reaps: tuple[ReapRunner, ...]) -> tuple[Runner, ...]:
    gone = {reap.runner.name for reap in reaps}
    return tuple(r for r in runners if r.name not in gone) if gone else runners


def _soonest(*waits: timedelta | None) -> timedelta | None:
    known = [wait for wait in waits if wait is not None]
    return max(SOON, min(known)) if known else None
