"""
Jobs, the claims on them and what became of each: the nouns of dispatch. Standard library only.

A job waits in its pool's queue, is claimed for one Pod, runs, and is over. A claim is a guess about which job a Pod
will run; the forge decides, and says so by the runner's name. So capacity is counted by Pod and life by job.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class Os(StrEnum):
    """What a job runs on. A tenant has one limit for each."""

    LINUX = "linux"
    DARWIN = "darwin"


class Kind(StrEnum):
    """Where a job comes from."""

    GITHUB = "github"
    LOCAL = "local"


class JobState(StrEnum):
    """How far a job is. The last two are for ever."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    """A Pod has it; nothing was handed over yet."""
    RUNNING = "running"
    """A job config was handed to a Pod, or the forge said that one of our runners executes it."""
    COMPLETED = "completed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        return self in {JobState.COMPLETED, JobState.CANCELLED}


def state_after(conclusion: str) -> JobState:
    """Return the last state of a job that ended so."""
    return JobState.CANCELLED if conclusion == "cancelled" else JobState.COMPLETED


@dataclass(frozen=True, slots=True)
class Size:
    """What a job takes of its tenant's limit, and what a tenant may take at once."""

    vcpus: int
    memory_mib: int

    def plus(self, other: Size) -> Size:
        return Size(self.vcpus + other.vcpus, self.memory_mib + other.memory_mib)

    def minus(self, other: Size) -> Size:
        return Size(self.vcpus - other.vcpus, self.memory_mib - other.memory_mib)

    def fits(self, room: Size) -> bool:
        return self.vcpus <= room.vcpus and self.memory_mib <= room.memory_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job as its forge announced it, with the pool and the size that were chosen for it then."""

    id: str
    """Unique over all forges: each host numbers its own jobs. ``github.com/4711``."""
    tenant: str
    repository: str
    pool: str
    os: Os
    size: Size
    queued_at: datetime
    """Its place in the queue. A job that comes back keeps it."""
    kind: Kind = Kind.GITHUB
    label: str = ""
    """The requested label that matched the pool: the runner must carry it."""
    labels: tuple[str, ...] = ()
    name: str = ""
    workflow: str = ""
    run_id: int | None = None
    run_attempt: int | None = None
    branch: str = ""
    commit: str = ""
    url: str = ""
    fork: bool = False
    """It comes from a fork's pull request."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A handle on one Pod's hold of a job. Whoever shows an old one changes nothing."""

    job_id: str
    pod: str
    pod_uid: str
    claimed_at: datetime
    """The fencing token: it grows with every claim of a tenant, and keeps its microseconds everywhere."""


def unnamed_job(pod_uid: str) -> str:
    """Return what stands in a claim for the job of a Pod that works on one which nobody has named."""
    return f"unnamed/{pod_uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job and how far it is."""

    spec: JobSpec
    state: JobState = JobState.QUEUED
    claim: Claim | None = None
    """The hold that made it claimed or running. What is over keeps its last one."""
    runner_name: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    conclusion: str = ""
    attempts: int = 0
    """How often it was claimed."""
    hold_until: datetime | None = None
    """It is not handed out before then: a forge that refuses one job must not keep every runner busy with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveClaim:
    """A claim that stands: one Pod, one job, and the room that they take."""

    claim: Claim
    tenant: str
    repository: str
    pool: str
    os: Os
    size: Size
    runner_name: str = ""
    """Set once a job config was minted for the Pod."""
    delivered_at: datetime | None = None
    """When the job config was handed over, as far as we know."""
    executed_at: datetime | None = None
    """When the forge said that this runner executes the job of the claim. Until then the job is a guess."""
    missing_since: datetime | None = None
    """When a sweep first did not see the Pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a Pod that got a job did with its one life: occupancy, attribution, accounting."""

    pod: str
    pod_uid: str
    job_id: str
    """The job that it was claimed for."""
    executed_job_id: str = ""
    """The job that the forge gave it; empty until that is proven."""
    tenant: str
    repository: str
    pool: str
    os: Os
    size: Size
    runner_name: str
    started_at: datetime
    ended_at: datetime | None = None
    job_started_at: datetime | None = None
    job_ended_at: datetime | None = None
    exit_code: int | None = None
    end_reason: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """A job is over. This outlives everything else that is known about it."""

    job_id: str
    conclusion: str
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A tenant's limit for one OS, and how it stands against it."""

    tenant: str
    os: Os
    limit: Size
    used: Size = Size(0, 0)
    last_claimed_at: datetime | None = None

    @property
    def room(self) -> Size:
        return self.limit.minus(self.used)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One control decision: who did what to which job or Pod, and why. Written with the change itself."""

    number: int
    at: datetime
    who: str
    what: str
    why: str
    job_id: str = ""
    pod: str = ""
    tenant: str = ""
    pool: str = ""
