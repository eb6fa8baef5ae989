"""
Dispatch's HTTP API as people's commands use it: what there is, why it is so, and jobs to run.

The rows are what the API serves, field by field (docs/reference/http-api.md). A field that a server does not send has
its default, and one that is not known here is passed over: a command and a server need not be of one version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from remuda.model.errors import RemudaError, Retry
from remuda.model.job import JobState  # noqa: TC001 - likewise
from remuda.model.output import Output

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping


# --- Errors ----------------------------------------------------------------------------------------------------------


class ApiError(RemudaError):
    """The API did not answer with what was asked for."""


class ApiUnavailable(ApiError):
    """It cannot be reached, or not now. Whether a request was taken is unknown; asking again may help."""

    def __init__(self, what: str, *, why: str, fix: str, after_s: float | None = None) -> None:
        super().__init__(what, why=why, fix=fix)
        self.after_s = after_s
        """How long to wait, if the server said so."""


class ApiNotFound(ApiError):
    """There is no such thing."""

    retry = Retry.NEVER


class ApiRefused(ApiError):
    """Who asks is not known, or may not do this."""

    retry = Retry.NEVER


class ApiInvalid(ApiError):
    """The request makes no sense to the server, or does not fit what is there."""

    retry = Retry.NEVER


class ApiFault(ApiError):
    """The server answered with something that makes no sense: it is no dispatch, or of another age."""

    retry = Retry.NEVER


# --- Rows ------------------------------------------------------------------------------------------------------------


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was read."""


class JobRow(Row, frozen=True, kw_only=True):
    """A job and how far it is."""

    id: str
    state: JobState
    kind: str = ""
    tenant: str = ""
    repository: str = ""
    pool: str = ""
    os: str = ""
    vcpus: int = 0
    memory_mib: int = 0
    label: str = ""
    labels: tuple[str, ...] = ()
    name: str = ""
    workflow: str = ""
    run_id: int | None = None
    run_attempt: int | None = None
    branch: str = ""
    commit: str = ""
    url: str = ""
    queued_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    conclusion: str = ""
    attempts: int = 0
    hold_until: datetime | None = None
    pod: str | None = None
    """The runner that has it, or had it last."""
    runner_name: str = ""


class ClaimRow(Row, frozen=True, kw_only=True):
    """A runner's hold of a job."""

    job_id: str
    pod: str
    pod_uid: str = ""
    claimed_at: datetime
    tenant: str = ""
    repository: str = ""
    pool: str = ""
    os: str = ""
    vcpus: int = 0
    memory_mib: int = 0
    runner_name: str = ""
    delivered_at: datetime | None = None
    executed_at: datetime | None = None
    missing_since: datetime | None = None


class SessionRow(Row, frozen=True, kw_only=True):
    """What a runner that got a job did with its one life."""

    job_id: str
    executed_job_id: str = ""
    tenant: str = ""
    repository: str = ""
    runner_name: str = ""
    started_at: datetime
    ended_at: datetime | None = None
    exit_code: int | None = None
    end_reason: str = ""


class PodRow(Row, frozen=True, kw_only=True):
    """A runner's Pod."""

    uid: str
    phase: str
    """starting, warm, busy or ended."""
    node: str = ""
    owner: str | None = None
    template: str = ""
    stale: bool = False
    """Made from an older template than its pool's."""
    created_at: datetime
    warm_at: datetime | None = None
    drain: bool = False
    marked: bool = False
    deleting_since: datetime | None = None
    unschedulable_why: str = ""


class RunnerRow(Row, frozen=True, kw_only=True):
    """A runner: its Pod, and what it does with its one job."""

    name: str
    pool: str = ""
    pod: PodRow | None = None
    """None: the Pod is gone."""
    claim: ClaimRow | None = None
    session: SessionRow | None = None


class Condition(Row, frozen=True, kw_only=True):
    """What the operator says about a pool."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class RunnerCounts(Row, frozen=True, kw_only=True):
    """How many runners a pool has, by how far they are."""

    starting: int = 0
    warm: int = 0
    busy: int = 0
    ended: int = 0
    terminating: int = 0


class PoolRow(Row, frozen=True, kw_only=True):
    """A pool and its runners."""

    name: str
    os: str = ""
    fleet: str = ""
    image: str = ""
    labels: tuple[str, ...] = ()
    forks: str = ""
    replicas: int = 0
    autoscaled: bool = False
    max_replicas: int | None = None
    paused: bool = False
    stale: int = 0
    """Runners of an older template, as the operator counted last."""
    rolling: int = 0
    """Runners that count against the roll's cap, likewise."""
    roll_cap: int = 0
    template: str = ""
    runners: RunnerCounts = RunnerCounts()
    conditions: tuple[Condition, ...] = ()
    created_at: datetime | None = None
    deleting: bool = False


class PoolWork(Row, frozen=True, kw_only=True):
    """How much work there is for a pool."""

    queued: int = 0
    claimed: int = 0
    occupied: int = 0
    withheld: int = 0
    p95_concurrent_last_hour: int = 0
    oldest_queued_s: float = 0.0


class PoolDetail(Row, frozen=True, kw_only=True):
    """A pool and the work that waits for it."""

    pool: PoolRow
    signals: PoolWork = PoolWork()


class HostRow(Row, frozen=True, kw_only=True):
    """A machine that runners are placed on."""

    name: str
    fleet: str = ""
    runtime: str = ""
    healthy: bool = False
    why_not: str = ""
    """Why no runner should start there now; empty if one may."""
    os: str = ""
    architecture: str = ""
    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)
    runners: int = 0
    created_at: datetime | None = None


class LimitRow(Row, frozen=True, kw_only=True):
    """What a tenant may use at once on one OS, and what it uses."""

    tenant: str
    os: str
    vcpus: int
    memory_mib: int
    used_vcpus: int = 0
    used_memory_mib: int = 0
    last_claimed_at: datetime | None = None


class Explanation(Row, frozen=True, kw_only=True):
    """Why something is as it is."""

    subject: str
    why: str
    """The reason in one word, for programs."""
    sentence: str
    evidence: tuple[str, ...] = ()
    next_step: str = ""


class Event(Row, frozen=True, kw_only=True):
    """One control decision: who did what to which job or runner, and why."""

    number: int
    """Grows, with gaps. Who comes back with it misses nothing."""
    at: datetime
    who: str = ""
    what: str = ""
    why: str = ""
    job_id: str = ""
    pod: str = ""
    tenant: str = ""
    pool: str = ""


class Outcome(Row, frozen=True, kw_only=True):
    """How far a local job is, as its own forge knows it, and how it ended."""

    id: str
    over: bool
    conclusion: str = ""
    """success, failure, cancelled, timed_out or lost; empty while it is not over."""
    exit_code: int | None = None
    """None: it is not over, it never ran, or nobody can say."""
    reason: str = ""
    pod: str = ""
    """The runner that began it."""
    submitted_at: datetime
    started_at: datetime | None = None
    cancelled_at: datetime | None = None
    """When somebody asked for its end."""
    ended_at: datetime | None = None
    files_bytes: int | None = None
    """How large the archive is that came back; None: none did."""
    files_note: str = ""
    """Why files that were asked for did not come back."""
    output: Output = Output.FINAL
    """Whether all is here that it printed. A server of before does not say."""


class Submitted(Row, frozen=True, kw_only=True):
    """A job that was taken."""

    id: str
    pool: str = ""
    state: JobState
    conclusion: str = ""
    submitted_at: datetime


# --- Questions -------------------------------------------------------------------------------------------------------


class Subject(StrEnum):
    """What can be explained by its name."""

    JOB = "jobs"
    RUNNER = "runners"
    POOL = "pools"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsWanted:
    """Which jobs to list. What is left out narrows nothing."""

    states: tuple[JobState, ...] = ()
    pool: str = ""
    tenant: str = ""
    repository: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsWanted:
    """Which events to follow."""

    after: int | None = None
    """Begin behind this number; None begins with what happens next."""
    job_id: str = ""
    pool: str = ""
    tenant: str = ""


ALL_JOBS: Final = JobsWanted()
ALL_EVENTS: Final = EventsWanted()


@dataclass(frozen=True, slots=True)
class SentFiles:
    """An archive that was sent whole."""

    file_id: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A script or a command to run once. Neither is a place for secrets, and the environment is none."""

    pool: str
    script: str = field(default="", repr=False)
    """Either this or ``command``."""
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: int = 3600
    name: str = ""
    upload: SentFiles | None = None
    download: tuple[str, ...] = ()


class Cancellation(StrEnum):
    """What a cancellation did."""

    CANCELLED = "cancelled"
    """It is over: nobody had begun it."""
    STOPPING = "stopping"
    """Its runner is told to stop. It is over when that has done so."""
    OVER = "over"
    """It was over before."""


class Api(Protocol):
    """
    The API. Every call has a deadline; every error is an ApiError.

    Nothing is tried again by itself but ``events``. Who stops reading a stream early closes it (``aclosing``).
    """

    async def jobs(
        self, wanted: JobsWanted = ALL_JOBS, *, limit: int | None = None
    ) -> tuple[JobRow, ...]:
        """Return jobs, the newest first; at most ``limit``, or all of them."""
        ...

    async def job(self, job_id: str) -> JobRow: ...

    async def runners(self, *, pool: str = "", limit: int | None = None) -> tuple[RunnerRow, ...]:
        """Return the runners whose Pods are there, by name."""
        ...

    async def runner(self, name: str) -> RunnerRow:
        """Return one runner, also one whose Pod is gone, if it had a job."""
        ...

    async def claims(self) -> tuple[ClaimRow, ...]: ...

    async def pools(self) -> tuple[PoolRow, ...]: ...

    async def pool(self, name: str) -> PoolDetail: ...

    async def hosts(self) -> tuple[HostRow, ...]: ...

    async def limits(self, *, tenant: str = "") -> tuple[LimitRow, ...]: ...

    async def explain(self, subject: Subject, name: str) -> Explanation: ...

    async def explain_labels(
        self, labels: tuple[str, ...], *, fork: bool = False
    ) -> Explanation: ...

    async def audit(
        self, *, after: int = 0, job_id: str = "", limit: int | None = None
    ) -> tuple[Event, ...]:
        """Return events of the past by number."""
        ...

    async def newest_event(self) -> int:
        """Return the number of the last event; 0 if nothing ever happened."""
        ...

    def events(
        self,
        wanted: EventsWanted = ALL_EVENTS,
        *,
        trouble: Callable[[ApiUnavailable], None] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """
        Follow what happens, without an end. A line that breaks is opened again behind the last event seen.

        ``trouble`` is told each time that fails. Raises only what trying again cannot help.
        """
        ...

    async def submit(self, job: NewJob, *, key: str) -> Submitted:
        """Post a job. The same request with the same key is the same job, however often it is sent."""
        ...

    async def cancel(self, job_id: str) -> Cancellation: ...

    async def outcome(self, job_id: str) -> Outcome:
        """Say how far a local job is, and how it ended."""
        ...

    def log(
        self, job_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """
        Read what a local job printed, from a place on, over one connection.

        With ``follow`` it stays until the job is over, or until the line was silent for long or the server goes: then
        it ends too, and who wants to go on asks again behind what came. Raises ApiUnavailable if the line breaks.
        """
        ...

    async def send_files(self, file_id: str, *, size: int, offset: int, data: bytes) -> int:
        """Send some of an archive of that size, for a job to come; return where to go on. May be repeated."""
        ...

    def files(self, job_id: str, *, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """Read what came back of a local job, from a place on, over one connection. ApiUnavailable: it broke."""
        ...

    async def ready(self) -> str:
        """Return why the server cannot serve now; empty if it can. Raises ApiUnavailable if it does not answer."""
        ...

    async def metrics(self) -> str:
        """Return the server's metrics as Prometheus reads them."""
        ...
