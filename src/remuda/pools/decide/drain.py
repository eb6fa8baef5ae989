"""Making room: idle runners leave draining nodes and deleted pools, busy ones are awaited. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.model.runner import Phase
from remuda.pools.decide import reaping
from remuda.pools.decide.actions import Cause, ReapRunner, ReleasePool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from remuda.model.runner import Runner

TERMINATING_HOLD = timedelta(seconds=60)
"""How long a deleted pool waits for hosts to clean up. A host that is gone for good must not hold it for ever."""
LOOK_AGAIN = timedelta(seconds=5)
"""While a runner was asked for and not seen, or a delete was sent and not confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDrain:
    """What a deleted pool still needs."""

    actions: tuple[ReapRunner | ReleasePool, ...]
    busy: tuple[str, ...]
    """Who is awaited because it holds a job."""
    terminating: tuple[str, ...]
    """Who is awaited because its host still cleans up."""
    look_again_after: timedelta | None


def off_nodes(runners: Iterable[Runner], draining_nodes: Collection[str]) -> tuple[ReapRunner, ...]:
    """Return the idle runners on nodes that are cordoned or being deleted. An idle runner never ends by itself."""
    return tuple(
        ReapRunner(runner, Cause.NODE_DRAIN, f"node {runner.node} takes no more work")
        for runner in runners
        if runner.node in draining_nodes and runner.is_idle and runner.is_known
    )


def drain_pool(runners: Iterable[Runner], now: datetime) -> PoolDrain:
    """Return what a deleted pool needs: idle and ended runners go now, busy ones when their job is over."""
    everyone = tuple(runners)
    reaps = (
        *reaping.ended(everyone),
        *(
            ReapRunner(r, Cause.POOL_DRAIN, "its pool is being deleted and it holds no job")
            for r in everyone
            if r.is_idle and r.is_known
        ),
    )
    busy = tuple(r.name for r in everyone if r.is_alive and r.phase is Phase.BUSY)
    # A runner that was asked for and is not seen yet may still appear: nobody would clean up after it.
    unseen = tuple(r.name for r in everyone if not r.is_known and r.deleting_since is None)
    held = {
        r.name: r.deleting_since + TERMINATING_HOLD - now
        for r in everyone
        if r.deleting_since is not None and now < r.deleting_since + TERMINATING_HOLD
    }
    waits = [*held.values(), *([LOOK_AGAIN] if unseen or reaps else [])]
    released = not (reaps or busy or unseen or held)
    release = (ReleasePool("nobody of it is left to wait for"),) if released else ()
    return PoolDrain(
        actions=(*reaps, *release),
        busy=busy,
        terminating=tuple(held),
        look_again_after=min(waits, default=None),
    )
