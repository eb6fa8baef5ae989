"""
Why a pool has no runner for a job, and what it can do for those that wait. Pure.

The verdict on each runner is the desk's own (``drain``); how far it is, is the operator's (``runner_of``).
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import UNSET

from remuda.dispatch.decide.drain import Leave, Serve, drain, has_label_conflict
from remuda.dispatch.decide.wording import Explanation, listed, some
from remuda.kube.runner_view import runner_of
from remuda.model.runner import Phase, Runner

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from remuda.kube.core import Pod
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.dispatch import Signals


class PoolWhy(StrEnum):
    """What a pool can do for a job now."""

    WARM = "warm"
    GONE = "pool_gone"
    DELETED = "pool_deleted"
    LABELS_CONFLICT = "labels_conflict"
    SCALED_TO_ZERO = "scaled_to_zero"
    STARTING = "runners_starting"
    UNSCHEDULABLE = "runners_unschedulable"
    AT_MAXIMUM = "pool_at_maximum"
    LEAVING = "runners_leaving"
    MISSING = "runners_missing"


def warm_runners(pool: RunnerPool | None, pods: Iterable[Pod]) -> list[str]:
    """Return the runners that would be given a job at their next poll."""
    return [
        pod.name
        for pod in pods
        if runner_of(pod).phase is Phase.WARM and isinstance(drain(pod, pool), Serve)
    ]


def nobody_warm(pool: RunnerPool | None, pods: Sequence[Pod], now: datetime) -> Explanation | None:
    """Say why no runner of the pool can take a job; None if one can."""
    if pool is None or warm_runners(pool, pods):
        return None
    alive = [r for r in map(runner_of, pods) if r.is_alive]
    explanation = (
        _starting(pool, alive, now)
        or _unschedulable(pool, alive)
        or _full(pool, alive)
        or _leaving(pool, pods)
        or _zero(pool)
        or _missing(pool)
    )
    return explanation.with_evidence(*_counts(pool, alive))


def explain_pool(
    pool: RunnerPool, pods: Sequence[Pod], signals: Signals, now: datetime
) -> Explanation:
    """Say what a pool can do for the jobs that wait in it."""
    work = (
        f"Jobs that could start now: {signals.queued}; that wait for their tenants' limits: {signals.withheld}",
        f"Runners that hold a job or clean up after one: {signals.occupied}",
    )
    if has_label_conflict(pool):
        sentence = f"Pool {pool.name} gets no jobs: an older pool has the same labels."
        step = "Change spec.labels of one of them, or delete one."
        return Explanation(PoolWhy.LABELS_CONFLICT, sentence, work, step)
    if pool.metadata.deletion_timestamp is not None:
        sentence = f"Pool {pool.name} is being deleted: it goes when its busy runners are done."
        return Explanation(PoolWhy.DELETED, sentence, work, "Nothing, or create it again.")
    if nobody := nobody_warm(pool, pods, now):
        return nobody.with_evidence(*work)
    warm = warm_runners(pool, pods)
    sentence = f"Pool {pool.name} has {some(len(warm), 'warm runner')}: a job would start at once."
    alive = [r for r in map(runner_of, pods) if r.is_alive]
    return Explanation(PoolWhy.WARM, sentence, (*_counts(pool, alive), *work), "Nothing.")


# --- Pools without a warm runner --------------------------------------------------------------------------------------


def _starting(pool: RunnerPool, alive: Sequence[Runner], now: datetime) -> Explanation | None:
    starting = [r for r in alive if r.phase is Phase.STARTING and not r.unschedulable_since]
    if not starting:
        return None
    oldest_s = max((now - (r.bound_at or r.created_at)).total_seconds() for r in starting)
    sentence = (
        f"No runner of pool {pool.name} is warm yet; {some(len(starting), 'runner')} of it start."
    )
    age = f"The oldest start has taken {max(oldest_s, 0):.0f} s"
    deadline = pool.spec.provisioning.start_timeout_seconds
    step = "Wait for the start" + (
        f"; one that takes over {deadline} s is replaced." if deadline else "."
    )
    return Explanation(PoolWhy.STARTING, sentence, (age,), step)


def _unschedulable(pool: RunnerPool, alive: Sequence[Runner]) -> Explanation | None:
    homeless = [r for r in alive if r.unschedulable_since and r.phase is Phase.STARTING]
    if not homeless:
        return None
    why = min((r.unschedulable_why for r in homeless), default="").rstrip(". ")
    why = why or "no reason is given"
    sentence = f"No host is found for {some(len(homeless), 'runner')} of pool {pool.name}: {why}."
    names = f"They are {listed(sorted(r.name for r in homeless))}"
    step = f"Give fleet {pool.spec.fleet} room: see its hosts with GET /api/v1/hosts."
    return Explanation(PoolWhy.UNSCHEDULABLE, sentence, (names,), step)


def _full(pool: RunnerPool, alive: Sequence[Runner]) -> Explanation | None:
    busy = [r for r in alive if r.phase is Phase.BUSY]
    if not busy or len(alive) < _wanted(pool) or len(busy) < len(alive):
        return None
    scaling = pool.spec.autoscaling
    sentence = (
        f"All {len(busy)} runners of pool {pool.name} hold jobs."
        if len(busy) > 1
        else f"The one runner of pool {pool.name} holds a job."
    )
    if scaling.enabled and scaling.max_replicas is not UNSET:
        if pool.spec.replicas < scaling.max_replicas:
            step = "Wait: the autoscaler asks for more runners within its next looks."
            return Explanation(PoolWhy.MISSING, sentence, (), step)
        step = f"Wait for one to end, or raise spec.autoscaling.maxReplicas ({scaling.max_replicas}) of the pool."
    else:
        step = f"Wait for one to end, or raise spec.replicas ({pool.spec.replicas}) of the pool."
    return Explanation(PoolWhy.AT_MAXIMUM, sentence, (), step)


def _leaving(pool: RunnerPool, pods: Sequence[Pod]) -> Explanation | None:
    idle = [pod for pod in pods if runner_of(pod).phase is Phase.WARM]
    reasons = Counter(v.reason for pod in idle if isinstance(v := drain(pod, pool), Leave))
    if not reasons:
        return None
    why = listed([f"{count} because {reason}" for reason, count in sorted(reasons.items())])
    sentence = f"The idle runners of pool {pool.name} are leaving: {why}."
    step = "Wait for their replacements."
    return Explanation(PoolWhy.LEAVING, sentence, (), step)


def _zero(pool: RunnerPool) -> Explanation | None:
    if _wanted(pool):
        return None
    sentence = f"Pool {pool.name} is scaled to zero."
    if pool.spec.autoscaling.enabled:
        step = "Wait: the autoscaler asks for a runner within its next looks. If not, look at the operator's log."
    else:
        step = (
            f"Scale it up: kubectl scale rpool {pool.name} --replicas=1, or switch autoscaling on."
        )
    return Explanation(PoolWhy.SCALED_TO_ZERO, sentence, (), step)


def _missing(pool: RunnerPool) -> Explanation:
    sentence = f"Pool {pool.name} wants {some(_wanted(pool), 'runner')}, and not all are there."
    said = tuple(
        f"{c.type}: {c.message}"
        for c in pool.status.conditions
        if c.type in {"Ready", "Degraded"} and c.message
    )
    step = f"Wait for the operator. If nothing comes, kubectl describe rpool {pool.name} says more."
    return Explanation(PoolWhy.MISSING, sentence, said, step)


def _wanted(pool: RunnerPool) -> int:
    scaling = pool.spec.autoscaling
    if not scaling.enabled or scaling.max_replicas is UNSET:
        return pool.spec.replicas
    return min(pool.spec.replicas, scaling.max_replicas)


def _counts(pool: RunnerPool, alive: Sequence[Runner]) -> tuple[str, ...]:
    phases = Counter(runner.phase for runner in alive)
    seen = ", ".join(f"{phases[phase]} {phase}" for phase in Phase if phase is not Phase.ENDED)
    paused = ("Its rollout is paused",) if pool.spec.rollout.paused else ()
    return (f"Pool {pool.name} wants {some(_wanted(pool), 'runner')}; there are {seen}", *paused)
