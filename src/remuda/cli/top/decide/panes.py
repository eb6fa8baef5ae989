"""The panes: what stands in each, in which orders it can be put, and what can be asked about a row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from remuda.cli.states import host_state, pool_state, runner_job, runner_note, runner_state
from remuda.cli.tables import Column, age, duration
from remuda.cli.top.decide.bars import BUSY, LEAVING, MISSING, STARTING, WARM, bar
from remuda.cli.top.decide.sight import slots_of
from remuda.model.job import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from remuda.cli.top.decide.sight import Sight
    from remuda.ports.api import Event, HostRow, JobRow, PoolRow, RunnerRow

T = TypeVar("T")
BAR: Final = 10
"""How many places a bar has."""


class Pane(StrEnum):
    """A part of the screen."""

    POOLS = "Pools"
    RUNNERS = "Runners"
    HOSTS = "Hosts"
    JOBS = "Jobs"
    EVENTS = "Events"


@dataclass(frozen=True, slots=True)
class About:
    """What a row is about: what to explain, and whose pool it is."""

    kind: str = ""
    """job, runner, pool or host; empty if nothing can be explained."""
    name: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Order(Generic[T]):
    """A way to sort."""

    name: str
    key: Callable[[T], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(Generic[T]):
    """How one pane is made of what was seen."""

    rows: Callable[[Sight], Sequence[T]]
    columns: tuple[Column[T], ...]
    """Those that are ``wide`` are shown where there is room."""
    orders: tuple[Order[T], ...]
    """The first is taken until somebody asks for another."""
    key: Callable[[T], str]
    about: Callable[[T], About]
    empty: str
    bar: str = ""
    """The title of the column that is a bar."""


# --- Pools ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PoolLine:
    """A pool, and how many jobs wait for it."""

    pool: PoolRow
    queued: int


def _pools(sight: Sight) -> tuple[PoolLine, ...]:
    if sight.fleet is None:
        return ()
    waiting = Counter(job.pool for job in sight.fleet.jobs if job.state is JobState.QUEUED)
    return tuple(PoolLine(pool, waiting[pool.name]) for pool in sight.fleet.pools)


def draining(pool: PoolRow) -> int:
    return pool.runners.terminating + pool.runners.ended


def pool_bar(pool: PoolRow) -> str:
    """Draw a pool's runners beside what it wants."""
    counts = pool.runners
    missing = pool.replicas - counts.busy - counts.warm - counts.starting
    parts = (
        (BUSY, counts.busy),
        (WARM, counts.warm),
        (STARTING, counts.starting),
        (MISSING, missing),
        (LEAVING, draining(pool)),
    )
    return bar(parts, BAR)


def rolled(pool: PoolRow) -> str:
    """Say how far a roll is, and how many runners it takes away at once beside how many it may."""
    if not pool.stale:
        return ""
    new = max(pool.replicas - pool.stale, 0)
    return f"{new} of {pool.replicas}, away {pool.rolling} of {pool.roll_cap}"


POOLS: Final[Shape[PoolLine]] = Shape(
    rows=_pools,
    key=lambda line: line.pool.name,
    about=lambda line: About("pool", line.pool.name, line.pool.name),
    empty="There are no pools. Make one with: kubectl apply",
    bar="RUNNERS",
    columns=(
        Column("POOL", lambda line, _: line.pool.name),
        Column("STATE", lambda line, _: pool_state(line.pool), is_state=True),
        Column("RUNNERS", lambda line, _: pool_bar(line.pool)),
        Column("WANT", lambda line, _: str(line.pool.replicas)),
        Column("WARM", lambda line, _: str(line.pool.runners.warm)),
        Column("BUSY", lambda line, _: str(line.pool.runners.busy)),
        Column("START", lambda line, _: str(line.pool.runners.starting), wide=True),
        Column("DRAIN", lambda line, _: str(draining(line.pool))),
        Column("QUEUE", lambda line, _: str(line.queued)),
        Column("ROLLED", lambda line, _: rolled(line.pool)),
        Column("LABELS", lambda line, _: ",".join(line.pool.labels), wide=True),
        Column("IMAGE", lambda line, _: line.pool.image, wide=True),
    ),
    orders=(
        Order("name", lambda line: line.pool.name),
        Order("most queued", lambda line: (-line.queued, line.pool.name)),
        Order("most busy", lambda line: (-line.pool.runners.busy, line.pool.name)),
    ),
)

# --- Runners ----------------------------------------------------------------------------------------------------------


def _age(runner: RunnerRow, now: datetime) -> str:
    return "" if runner.pod is None else age(runner.pod.created_at, now)


def _born(runner: RunnerRow) -> float:
    return 0.0 if runner.pod is None else runner.pod.created_at.timestamp()


def _node(runner: RunnerRow) -> str:
    return "" if runner.pod is None else runner.pod.node


RUNNERS: Final[Shape[RunnerRow]] = Shape(
    rows=lambda sight: sight.fleet.runners if sight.fleet else (),
    key=lambda runner: runner.name,
    about=lambda runner: About("runner", runner.name, runner.pool),
    empty="There are no runners.",
    columns=(
        Column("RUNNER", lambda runner, _: runner.name),
        Column("PHASE", lambda runner, _: runner_state(runner), is_state=True),
        Column("JOB", lambda runner, _: runner_job(runner)),
        Column("AGE", _age),
        Column("HOST", lambda runner, _: _node(runner)),
        Column("POOL", lambda runner, _: runner.pool, wide=True),
        Column("NOTE", lambda runner, _: runner_note(runner), wide=True),
    ),
    orders=(
        Order("name", lambda runner: runner.name),
        Order("oldest", lambda runner: (_born(runner), runner.name)),
        Order("phase", lambda runner: (runner_state(runner), runner.name)),
        Order("host", lambda runner: (_node(runner), runner.name)),
    ),
)

# --- Hosts ------------------------------------------------------------------------------------------------------------


def host_bar(host: HostRow) -> str:
    """Draw how many of a host's slots are used."""
    return bar(((BUSY, host.runners), (MISSING, slots_of(host) - host.runners)), BAR)


HOSTS: Final[Shape[HostRow]] = Shape(
    rows=lambda sight: sight.fleet.hosts if sight.fleet else (),
    key=lambda host: host.name,
    about=lambda host: About("host", host.name),
    empty="There are no hosts: no agent has announced itself.",
    bar="SLOTS",
    columns=(
        Column("HOST", lambda host, _: host.name),
        Column("CONDITION", lambda host, _: host_state(host), is_state=True),
        Column("SLOTS", lambda host, _: host_bar(host)),
        Column("USED", lambda host, _: f"{host.runners} of {slots_of(host)}"),
        Column("RUNTIME", lambda host, _: host.runtime),
        Column("AGE", lambda host, now: age(host.created_at, now)),
        Column("FLEET", lambda host, _: host.fleet, wide=True),
        Column("OS", lambda host, _: host.os, wide=True),
        Column("CPU", lambda host, _: host.allocatable.get("cpu", ""), wide=True),
        Column("MEMORY", lambda host, _: host.allocatable.get("memory", ""), wide=True),
    ),
    orders=(
        Order("name", lambda host: host.name),
        Order("trouble first", lambda host: (host.healthy, host.name)),
        Order("fullest", lambda host: (host.runners - slots_of(host), host.name)),
    ),
)

# --- Jobs -------------------------------------------------------------------------------------------------------------


def job_state(job: JobRow) -> str:
    """Say how far a job is, or how it ended."""
    return (job.conclusion or job.state.value) if job.state.over else job.state.value


def waited(job: JobRow, now: datetime) -> str:
    until = job.started_at or job.ended_at or now
    return duration((until - job.queued_at).total_seconds())


def took(job: JobRow, now: datetime) -> str:
    if job.started_at is None:
        return ""
    return duration(((job.ended_at or now) - job.started_at).total_seconds())


def _by_stage(job: JobRow) -> tuple[int, float, str]:
    """Put those that wait first, the longest on top; then those that run; then those that ended, the last on top."""
    if job.state is JobState.QUEUED:
        return 0, job.queued_at.timestamp(), job.id
    if not job.state.over:
        return 1, (job.started_at or job.queued_at).timestamp(), job.id
    return 2, -(job.ended_at or job.queued_at).timestamp(), job.id


def _runner_of(job: JobRow) -> str:
    return job.pod or ""


JOBS: Final[Shape[JobRow]] = Shape(
    rows=lambda sight: sight.fleet.jobs if sight.fleet else (),
    key=lambda job: job.id,
    about=lambda job: About("job", job.id, job.pool),
    empty="There are no jobs. Run something with: remuda run -- uname -a",
    columns=(
        Column("JOB", lambda job, _: job.id),
        Column("STATE", lambda job, _: job_state(job), is_state=True),
        Column("NAME", lambda job, _: job.name),
        Column("POOL", lambda job, _: job.pool),
        Column("WAITED", waited),
        Column("TOOK", took),
        Column("RUNNER", lambda job, _: _runner_of(job), wide=True),
        Column("REPOSITORY", lambda job, _: job.repository, wide=True),
        Column("BRANCH", lambda job, _: job.branch, wide=True),
    ),
    orders=(
        Order("longest queued", _by_stage),
        Order("newest", lambda job: (-job.queued_at.timestamp(), job.id)),
        Order("pool", lambda job: (job.pool, _by_stage(job))),
    ),
)

# --- Events -----------------------------------------------------------------------------------------------------------


def _whose(event: Event) -> str:
    return event.job_id or event.pod or event.pool or event.tenant


def _event_about(event: Event) -> About:
    if event.job_id:
        return About("job", event.job_id, event.pool)
    if event.pod:
        return About("runner", event.pod, event.pool)
    return About("pool" if event.pool else "", event.pool, event.pool)


EVENTS: Final[Shape[Event]] = Shape(
    rows=lambda sight: sight.events,
    key=lambda event: str(event.number),
    about=_event_about,
    empty="Nothing has happened yet.",
    columns=(
        Column("TIME", lambda event, now: f"{event.at.astimezone(now.tzinfo):%H:%M:%S}"),
        Column("WHAT", lambda event, _: event.what),
        Column("OF", lambda event, _: _whose(event)),
        Column("WHY", lambda event, _: event.why),
        Column("RUNNER", lambda event, _: event.pod, wide=True),
        Column("BY", lambda event, _: event.who, wide=True),
    ),
    orders=(
        Order("newest", lambda event: -event.number),
        Order("oldest", lambda event: event.number),
    ),
)

SHAPES: Final[dict[Pane, Shape[Any]]] = {
    Pane.POOLS: POOLS,
    Pane.RUNNERS: RUNNERS,
    Pane.HOSTS: HOSTS,
    Pane.JOBS: JOBS,
    Pane.EVENTS: EVENTS,
}
