"""
Where jobs come from, and who registers the runners that take them. One implementation per kind of forge.

Errors say whom to pass over: one broken installation must not keep every warm runner busy. No text of an error holds a
job config, a token or a key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from remuda.model.errors import RemudaError, Retry

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime, timedelta

    from remuda.model.job import JobSpec, Kind, Os
    from remuda.ports.deliveries import Delivery
    from remuda.ports.local_jobs import Upload
    from remuda.ports.registrations import Registration


class ForgeError(RemudaError):
    """The forge did not do what was asked. Whether it was done may be unknown."""


class ForgeUnavailable(ForgeError):
    """It failed, timed out or cannot be reached."""


class ForgeThrottled(ForgeError):
    """Too much was asked of it. Ask nothing of the same tenant before ``retry_after_s``."""

    def __init__(self, what: str, *, why: str, fix: str, retry_after_s: float = 60.0) -> None:
        super().__init__(what, why=why, fix=fix)
        self.retry_after_s = retry_after_s


class Scope(StrEnum):
    """What a refusal holds for."""

    TENANT = "tenant"
    REPOSITORY = "repository"
    JOB = "job"


class ForgeRefused(ForgeError):
    """It said no. Asking the same again does not help before a person changed something there."""

    retry = Retry.NEVER

    def __init__(self, what: str, *, why: str, fix: str, scope: Scope = Scope.JOB) -> None:
        super().__init__(what, why=why, fix=fix)
        self.scope = scope


# --- What a forge says about jobs -------------------------------------------------------------------------------------


class Action(StrEnum):
    """What happened to a job."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    WAITING = "waiting"
    """It waits for a person's approval: no capacity is needed for it. ``queued`` comes when it has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One piece of news about a job, read from a message or found by a sweep."""

    action: Action
    job_id: str
    """Unique over all forges: ``github.com/4711``."""
    tenant: str
    """From the installation that signed for it, never from a name in the body. Fit for a label's value."""
    repository: str
    labels: tuple[str, ...]
    """What ``runs-on`` asks for, as written."""
    queued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    conclusion: str = ""
    runner_name: str = ""
    name: str = ""
    workflow: str = ""
    run_id: int | None = None
    run_attempt: int | None = None
    branch: str = ""
    commit: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing of ours: a ping, another event, an installation that is not served. ``reason`` is a short word."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message that nobody may act on."""

    status: int
    error: str
    why: str
    fix: str


class Webhooks(Protocol):
    """The border where a forge's messages come in. No I/O: it must answer at once."""

    def refuse_unread(self, headers: Mapping[str, str]) -> Rejected | None:
        """Look at the headers (lower-case names) before the body is read: a message without a signature never is."""
        ...

    def accept(self, headers: Mapping[str, str], body: bytes) -> Delivery | Ignored | Rejected:
        """Check the signature over the raw body in constant time, and only then look into it."""
        ...


class ForgeState(StrEnum):
    """How far a job is at its forge."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    GONE = "gone"
    """The forge does not know it (any more)."""
    OTHER = "other"
    """Waiting for approval, or something new. Leave it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeJob:
    """A job as its forge sees it now."""

    state: ForgeState
    conclusion: str = ""
    runner_name: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None


# --- Runners ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRunner:
    """A runner to be registered."""

    name: str
    """Fresh for every mint and at most 64 characters: the forge keeps a name even if its answer was lost."""
    labels: tuple[str, ...]
    """The job's label that matched, and the pool's."""
    os: Os
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Minted:
    """What makes a runner take a job: a secret, kept nowhere. Exactly one of both is set."""

    encoded_jit_config: str = field(default="", repr=False)
    script: str = field(default="", repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    upload: Upload | None = None
    """What a script must find in the folder that it begins in."""
    download: tuple[str, ...] = ()
    """What is to come back of that folder."""
    deadline: datetime | None = None
    """When the job must be over; None: the forge sees to that."""
    registration: Registration | None = None
    """What is to be removed at the forge if the runner is never used."""


class Removal(StrEnum):
    """What became of a registration."""

    REMOVED = "removed"
    GONE = "gone"
    BUSY = "busy"
    """It executes a job: it is left alone."""


class Forge(Protocol):
    """One kind of forge. Every call has a deadline; every error is a ForgeError."""

    @property
    def kind(self) -> Kind: ...

    async def mint(self, job: JobSpec, runner: NewRunner) -> Minted:
        """Register a single-use runner for a job. Never repeated inside: a new try takes a new name."""
        ...

    async def look_up(self, job: JobSpec) -> ForgeJob: ...

    async def remove(self, registration: Registration) -> Removal:
        """Remove a registration that was never used, by its number or else its name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a sweep cost one tenant's rate limit, and what the limit leaves for others."""

    asked: int
    """Requests that were sent."""
    charged: int
    """Those of them that count: an answer that has not changed does not."""
    per_minute_max: int
    """How many may be sent in a minute, whether they count or not."""
    left: int | None = None
    """How many more may count before the limit begins anew, without what minting needs; None: the forge did not say."""
    resets_s: float = 0.0
    """In how many seconds it begins anew."""
    silent_s: float = 0.0
    """For how long the forge wants to be asked nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep found."""

    found: tuple[Announcement, ...]
    repositories: int
    """How many were looked at."""
    left_out: int = 0
    """How many were not, because the budget is kept for minting or their forge failed."""
    spent: tuple[Spent, ...] = field(default=(), compare=False)
    """What it cost, for each tenant that was asked about."""
    looked_at: frozenset[str] = frozenset()
    """The repositories, in lower case, whose lists were read to their end."""
    alive: frozenset[str] = frozenset()
    """The jobs that are queued or under way there. A job of such a repository that is not among them may be over."""


class Announcer(Protocol):
    """A forge that sends messages, and can be asked for what they would have said."""

    async def read(self, delivery: Delivery) -> Announcement | Ignored:
        """Read an accepted message. Raises ForgeError if that needs the forge and it does not answer: try later."""
        ...

    async def is_fork(self, repository: str, run_id: int | None, tenant: str) -> bool | None:
        """Say whether a run comes from a fork's pull request; None: the forge does not say, or not yet."""
        ...

    async def sweep(self, first: Collection[str], *, at_most: int) -> Swept:
        """
        Look for queued jobs in the repositories ``first``, then in others in turn, ``at_most`` in all.

        Where sweeps are all that tells of jobs, it also says what became of those that have a runner. It gives
        way before the rate limit that minting needs is touched.
        """
        ...

    async def redeliver(self, *, within: timedelta) -> int:
        """Ask for the messages again of which no attempt reached us. Returns how many."""
        ...
