"""
The store of jobs: the only place where control decisions about jobs are kept.

Every change is one transaction, is a compare-and-set on what the caller saw, and writes its audit entry with it. The
answers say what happened; "nothing, because …" is an answer, not an error. Errors are a ``DatabaseError``: after one,
whether the change happened is unknown, and each call may be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.model.job import Claim, Completion, Job, JobSpec, LiveClaim, Os, Session, Size
    from remuda.ports.registrations import Registration


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The job is new. It waits in its pool's queue, or runs already: the forge may be quicker than its messages."""

    job: Job


@dataclass(frozen=True, slots=True)
class Known:
    """The job is here already; nothing changed."""

    job: Job


@dataclass(frozen=True, slots=True)
class Over:
    """The job is over, whatever this late message says; nothing changed."""

    completion: Completion


@dataclass(frozen=True, slots=True)
class WarmRunner:
    """A Pod that asks for a job."""

    pod: str
    pod_uid: str
    pool: str
    runner_name: str = ""
    """The name that its runner will have at the forge, for ``Registrations`` to know it before the forge does."""


@dataclass(frozen=True, slots=True)
class Without:
    """What this poll must not be given: it has just failed for this reason."""

    tenants: frozenset[str] = frozenset()
    repositories: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()


ANYTHING = Without()
AUDIT_KEPT = timedelta(days=30)
"""The audit goes back at least so far, whatever else is forgotten."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The job is this Pod's. ``claim`` is the handle for everything that follows."""

    job: Job
    claim: Claim


class NoJob(StrEnum):
    """Why a Pod got no job."""

    EMPTY = "empty"
    """Nothing waits in its pool."""
    HELD = "held"
    """What waits is held back for a while, or was asked not to be given."""
    CAPPED = "capped"
    """Each tenant that has a job here is at its limit, or its jobs are larger than what is left."""
    NO_LIMITS = "no_limits"
    """The tenants that have a job here have no limits set: they may take nothing."""
    BUSY = "busy"
    """Others were claiming for the same tenants all the while. Ask again at once."""
    LOST_RACE = "lost_race"
    """What waited was taken or changed at that moment. Ask again at once."""
    POD_IN_USE = "pod_in_use"
    """The Pod holds a claim; see ``held``. None: another request of this Pod is being served now."""
    POD_SPENT = "pod_spent"
    """The Pod has had its one job."""


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The Pod gets no job now."""

    reason: NoJob
    held: LiveClaim | None = None
    """With ``pod_in_use``: what the Pod holds. It may belong to an earlier Pod of the same name: compare the UID."""


@dataclass(frozen=True, slots=True)
class Running:
    """The job runs on the Pod, and its session is open."""

    job: Job
    session: Session
    replaced_runner: str = ""
    """The registration that a second delivery made useless."""


class Fence(StrEnum):
    """What a handle ran into."""

    GONE = "gone"
    """No such claim stands any more: it was released, or the Pod was claimed for anew."""
    MOVED = "moved"
    """The Pod is alive and runs another job than the handle says."""
    OVER = "over"
    """The job is over."""
    DELIVERED = "delivered"
    """A job config was handed over for this claim already, under another runner's name."""
    EXECUTING = "executing"
    """The forge said that the runner executes its job."""
    TOO_LATE = "too_late"
    """The time for a second delivery has passed."""
    SEEN = "seen"
    """The Pod was seen again."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The handle is old; nothing changed."""

    why: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Why a claim ends, and what is known about it."""

    by: str
    why: str
    undelivered: bool = False
    """
    The Pod certainly never got the job config: dispatch says so about its own attempt. The session goes with the claim,
    and the Pod may ask again. Else the release rests on evidence about the handle's job, and holds for that job only.
    """
    runner_name: str | None = None
    """Only if this is still the claim's runner (empty: none is minted yet); else ``delivered``."""
    hold_until: datetime | None = None
    missing_since: datetime | None = None
    """Release only if the Pod has been missing since exactly then."""


@dataclass(frozen=True, slots=True)
class Released:
    """The claim is gone, its room is free."""

    job_id: str
    requeued: bool
    """The job is back in its old place. False: it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The forge says which runner executes a job."""

    tenant: str
    """From the installation that sent the message: runner names are the tenants' own, and may collide."""
    job_id: str
    runner_name: str
    started_at: datetime
    by: str


class Attribution(StrEnum):
    """What an execution said about the claim of its runner."""

    MATCHED = "matched"
    """The runner runs the job that it was claimed for."""
    MOVED = "moved"
    """It runs another: the claim is now for that one, and the first job is back in its place or has the other's Pod."""
    CONTRADICTED = "contradicted"
    """That runner was said to run another job before: a runner runs one. Nothing changed."""
    UNKNOWN_RUNNER = "unknown_runner"
    """No claim of this tenant has a runner of that name."""
    OVER = "over"
    """The job is over already: the message is late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """A job is over, as the forge or a sweep says."""

    job_id: str
    tenant: str
    conclusion: str
    ended_at: datetime
    by: str
    why: str = ""
    runner_name: str = ""
    """Who executed it: that runner's claim ends. Empty if nobody did: then no claim ends, its Pod may run a sibling."""
    started_at: datetime | None = None
    ends_claim: bool = False
    """End the claim on the job itself: the forge knows neither the job nor who ran it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The job is over and stays so."""

    news: bool
    """False: that was known."""
    freed: tuple[Claim, ...] = ()
    """The claims that ended with it."""
    requeued: tuple[str, ...] = ()
    """Jobs that wait again: the runner was claimed for them and ran this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnd:
    """A Pod stopped, or is gone."""

    pod: str
    ended_at: datetime
    by: str
    exit_code: int | None = None
    reason: str = ""
    pod_uid: str = ""
    """Only this Pod's claim, session and jobs. Empty: of whichever bears the name."""
    missing_since: datetime | None = None
    """If its claim stands: only if the Pod has been missing since exactly then. Else nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStopped:
    """What the end of a Pod changed."""

    session: Session | None = None
    released: Claim | None = None
    requeued: str = ""
    """Its job, if nothing had been handed over yet."""
    in_doubt: tuple[Job, ...] = ()
    """Jobs that run on that Pod for all we know. Ask the forge: they may be over, elsewhere, or waiting again."""


@dataclass(frozen=True, slots=True)
class Sighted:
    """How many claims changed by a look at the Pods."""

    missing: int
    back: int


class JobStore(Protocol):
    """The life of jobs. ``JobViews`` reads, ``Deliveries`` keeps the forge's messages."""

    async def ensure_limits(self, tenant: str, os: Os, limit: Size, *, by: str) -> bool:
        """Give a tenant a limit unless it has one. A tenant without one gets no job."""
        ...

    async def set_limits(self, tenant: str, os: Os, limit: Size, *, by: str) -> None:
        """Change a limit. One below what is in use ends nothing: no new job fits until room is free."""
        ...

    async def enqueue(self, spec: JobSpec, *, by: str) -> Enqueued | Known | Over:
        """Take a job in, once, however often and in whatever order the forge tells of it."""
        ...

    async def claim(
        self, runner: WarmRunner, *, without: Without = ANYTHING
    ) -> Claimed | NothingToDo:
        """
        Give a Pod the job whose turn it is.

        First the tenant that is served least, measured by its share of its own limit less the time that it has gone
        without; in it the repository, likewise; in that the oldest job. A tenant at its limit is passed over.

        If the runner has a name, that is noted in ``Registrations`` with the claim, unless the job is a local one: such
        a runner is registered nowhere. Once this returns, the note is durable.
        """
        ...

    async def mark_running(
        self,
        claim: Claim,
        runner_name: str,
        *,
        registered: Registration | None = None,
        job: Job | None = None,
    ) -> Running | Stale:
        """
        Record that a job config was minted, and open the session. On ``Stale`` hand nothing out.

        ``registered``: what the forge calls the runner. It is added to what ``Registrations`` noted, also on ``Stale``.
        ``job``: as ``claim`` returned it, if the caller has it: then it need not be read again.
        """
        ...

    async def deliver_again(
        self,
        claim: Claim,
        runner_name: str,
        *,
        within: timedelta,
        registered: Registration | None = None,
    ) -> Running | Stale:
        """Replace the runner of a claim whose first answer was lost: a job config is kept nowhere."""
        ...

    async def release(self, claim: Claim, release: Release) -> Released | Stale:
        """End a claim. Its job goes back to its old place unless it is over."""
        ...

    async def disown(self, claim: Claim, *, by: str, why: str) -> Released | Stale:
        """
        Take a handed-over job from a Pod that works on another one, which nobody has named.

        The job goes back to its old place. The claim stays, with its room, for a job that is not known: until the forge
        names it, or the Pod stops.
        """
        ...

    async def attribute(self, execution: Execution) -> Attribution:
        """Bind a job to the runner that executes it. Enqueue a job that is unknown first, if it is for our pools."""
        ...

    async def complete(self, end: JobEnd) -> Completed:
        """End a job for good, also one that was never heard of, and free the runner that executed it."""
        ...

    async def stop_pod(self, end: PodEnd) -> PodStopped:
        """Close a Pod's session (a later report can only shorten it) and end its claim."""
        ...

    async def sight_pods(
        self, *, present: Iterable[Claim], absent: Iterable[Claim], by: str
    ) -> Sighted:
        """Note whose Pods a sweep saw. A claim is released for a missing Pod only at a second look."""
        ...

    async def forget(self, *, over_before: datetime, limit: int) -> int:
        """
        Delete what ended before then: jobs, their completions, sessions, and audit entries of that age.

        One batch: at most ``limit`` of each, the oldest first. Returns how many in all; call again until it is none.
        Never a job that is not over or that a Pod holds, nor an audit entry that is younger than 30 days.
        """
        ...
