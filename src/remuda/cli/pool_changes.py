"""
What people change about a pool, as patches of its RunnerPool. Decides and writes; prints nothing.

The operator does the rest. A change that would be undone, or could have no effect, is refused with what to do instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from remuda.cli.exits import Declined
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from msgspec import UnsetType

    from remuda.kube.patches import JsonValue
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.kube import Kube

ROLLED_AT: Final = "rolled-at"
"""Annotation of the template: another value makes another template, and so a roll. Ours may not have our own domain."""
_TRIES: Final = 10
"""The operator writes a pool's status often; more conflicts in a row than this are no accident."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A pool after a change, and what was done, as a sentence."""

    pool: RunnerPool
    sentence: str


Decision = tuple[MergePatch | None, str]
"""What to write, if anything, and the sentence that says what was done."""


async def change(
    kube: Kube, namespace: str, name: str, decide: Callable[[RunnerPool], Decision]
) -> Changed:
    """Carry out a decision about a pool as it is: if it changed meanwhile, decide again."""
    for tries_left in reversed(range(_TRIES)):
        pool = await read_pool(kube, namespace, name)
        if pool.metadata.deletion_timestamp is not None:
            raise Declined(
                f"Pool {name} was not changed",
                why="it is being deleted, and goes when its busy runners are done",
                fix="Create it again once it is gone",
            )
        patch, sentence = decide(pool)
        if patch is None:
            return Changed(pool, sentence)
        seen = MergePatch({**patch.changes, "metadata": {"resourceVersion": pool.resource_version}})
        try:
            changed = await kube.patch(RUNNER_POOL, name, seen, namespace=namespace)
        except Conflict:
            if not tries_left:
                raise
            continue
        return Changed(changed, sentence)
    raise AssertionError("the last try returns or raises")


async def read_pool(kube: Kube, namespace: str, name: str) -> RunnerPool:
    try:
        return await kube.get(RUNNER_POOL, name, namespace=namespace)
    except NotFound as error:
        raise NotFound(
            f"There is no pool {name} in namespace {namespace}",
            why=error.why,
            fix="See what there is with: remuda pools. --namespace names another namespace",
        ) from None


def pause(pool: RunnerPool) -> Decision:
    """Let a roll stop where it is."""
    if pool.spec.rollout.paused:
        return None, f"The rollout of pool {pool.name} was paused already."
    done = f"The rollout of pool {pool.name} is paused: nobody else is marked for replacement."
    return _paused(paused=True), done


def resume(pool: RunnerPool) -> Decision:
    if not pool.spec.rollout.paused:
        return None, f"The rollout of pool {pool.name} was not paused."
    stale = _known(pool.status.stale)
    left = f" {stale} stale runners are replaced." if stale else ""
    return _paused(paused=False), f"The rollout of pool {pool.name} goes on.{left}"


def scale(replicas: int) -> Callable[[RunnerPool], Decision]:
    """Return what sets how many runners a pool wants. A number that the autoscaler owns is not a person's to set."""

    def decide(pool: RunnerPool) -> Decision:
        if pool.spec.autoscaling.enabled:
            raise Declined(
                f"Pool {pool.name} was not scaled",
                why="its autoscaler owns the number of runners and would set it back",
                fix="Change spec.autoscaling.minWarm or maxReplicas of the pool, or set its"
                " spec.autoscaling.enabled to false first",
            )
        before = pool.spec.replicas
        if before == replicas:
            return None, f"Pool {pool.name} wants {_runners(replicas)} already."
        done = f"Pool {pool.name} wants {_runners(replicas)} instead of {before}."
        return MergePatch({"spec": {"replicas": replicas}}), done

    return decide


def roll(now: datetime) -> Callable[[RunnerPool], Decision]:
    """Return what replaces every runner of a pool, as fast as its rollout allows, by making its template another."""

    def decide(pool: RunnerPool) -> Decision:
        if pool.spec.rollout.paused:
            raise Declined(
                f"Pool {pool.name} was not rolled",
                why="its rollout is paused, so nobody would be replaced",
                fix=f"Let it go on first: remuda pools resume {pool.name}",
            )
        stamp = now.isoformat(timespec="microseconds")
        done = (
            f"Pool {pool.name} rolls: its {_runners(pool.spec.replicas)} are replaced, the busy ones"
            " after their jobs."
        )
        template: JsonValue = {"metadata": {"annotations": {ROLLED_AT: stamp}}}
        return MergePatch({"spec": {"template": template}}), done

    return decide


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pool is on its way to what it wants."""

    done: int
    total: int
    text: str
    over: bool


def progress(pool: RunnerPool, generation: int) -> Progress:
    """Say how far a pool is with its change of that generation, by the operator's own counts."""
    status, wanted = pool.status, pool.spec.replicas
    there, starting = _known(status.replicas), _known(status.starting)
    stale = _known(status.stale)
    observed = _known(status.observed_generation) >= generation
    if not observed:
        return Progress(0, wanted, "the operator has not seen the change yet", over=False)
    current = max(there - stale - starting, 0)
    over = there == wanted and current == wanted
    counts = f"{current} of {wanted} as wanted, {starting} start, {stale} stale, {_known(status.busy)} busy"
    return Progress(min(current, wanted), wanted, counts, over=over)


def _paused(*, paused: bool) -> MergePatch:
    return MergePatch({"spec": {"rollout": {"paused": paused}}})


def _known(count: int | UnsetType) -> int:
    return 0 if count is UNSET else count


def _runners(count: int) -> str:
    return f"{count} runner" if count == 1 else f"{count} runners"
