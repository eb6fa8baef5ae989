"""Runners and pools for tests: what a test does not care about has a dull default."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from remuda.model.pool import Pool
from remuda.model.runner import End, Mark, Phase, Runner
from remuda.pools.decide.brake import Slots
from remuda.pools.decide.one_pass import Surroundings

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    class PoolFields(TypedDict, total=False):
        name: str
        replicas: int
        template: str
        proven: str
        roll_percent: int
        paused: bool
        progress_deadline: timedelta
        start_timeout: timedelta | None
        deleting: bool
        roll_waiting_since: datetime | None

    class RunnerFields(TypedDict, total=False):
        uid: str
        version: str
        template: str
        created_at: datetime
        node: str
        bound_at: datetime | None
        unschedulable_since: datetime | None
        unschedulable_why: str
        warm_at: datetime | None
        mark: Mark | None
        drain: bool
        deleting_since: datetime | None
        end: End | None
        unready_since: datetime | None


NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
NEW = "new"
OLD = "old"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_pool(**fields: Unpack[PoolFields]) -> Pool:
    pool = Pool(
        name="mac",
        fleet="minis",
        replicas=3,
        template=NEW,
        progress_deadline=timedelta(seconds=600),
        start_timeout=timedelta(seconds=300),
    )
    return replace(pool, **fields)


def a_runner(name: str, phase: Phase = Phase.WARM, **fields: Unpack[RunnerFields]) -> Runner:
    runner = Runner(
        name=name,
        uid=f"uid-{name}",
        version="1",
        template=NEW,
        created_at=ago(1000),
        phase=phase,
        node="host-1",
        bound_at=ago(90),
        warm_at=ago(50) if phase in {Phase.WARM, Phase.BUSY} else None,
    )
    return replace(runner, **fields)


def warm(name: str, **fields: Unpack[RunnerFields]) -> Runner:
    return a_runner(name, Phase.WARM, **fields)


def busy(name: str, **fields: Unpack[RunnerFields]) -> Runner:
    return a_runner(name, Phase.BUSY, **fields)


def starting(name: str, **fields: Unpack[RunnerFields]) -> Runner:
    return a_runner(name, Phase.STARTING, **fields)


def waiting(name: str, **fields: Unpack[RunnerFields]) -> Runner:
    """Return a runner that has no host yet."""
    return replace(a_runner(name, Phase.STARTING, node="", bound_at=None), **fields)


def ended(name: str, **fields: Unpack[RunnerFields]) -> Runner:
    return a_runner(name, Phase.ENDED, **fields)


def unseen(name: str, **fields: Unpack[RunnerFields]) -> Runner:
    """Return a runner that was asked for and not confirmed."""
    return replace(waiting(name, **fields), uid="", version="")


def marked(
    name: str, *, target: str = NEW, age_s: float = 10, **fields: Unpack[RunnerFields]
) -> Runner:
    """Return a warm runner of the old template that a roll asked to leave."""
    return replace(warm(name, template=OLD, mark=Mark(target, ago(age_s))), **fields)


def around(free: int = 100, *draining_nodes: str) -> Surroundings:
    return Surroundings(slots=Slots(free), draining_nodes=frozenset(draining_nodes))
