"""What follows from a job that could not be handed over: who is passed over, and for how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.ports.forge import ForgeRefused, ForgeThrottled, Scope
from remuda.ports.jobs import ANYTHING, Without

if TYPE_CHECKING:
    from remuda.dispatch.settings import PollSettings
    from remuda.model.job import Job
    from remuda.ports.forge import ForgeError

_DOUBLINGS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What to do about a forge's failure."""

    word: str
    """For metrics."""
    hold: timedelta
    """How long no Pod is given the job."""
    without: Without = ANYTHING
    """What the same poll is not given."""
    pass_over_s: float = 0.0
    """How long this replica passes the whole tenant over."""
    outage: bool = False
    """It says something about the forge itself."""
    registered: bool | None = False
    """Whether the forge may know the runner; None: nobody knows."""


def judge(error: ForgeError, job: Job, settings: PollSettings) -> Judgement:
    """Say whom a failure concerns. What is not known to be narrower is taken for an outage."""
    spec, hold = job.spec, hold_of(job, settings)
    this_job = Without(jobs=frozenset({spec.id}))
    match error:
        case ForgeRefused(scope=Scope.TENANT):
            tenants = Without(tenants=frozenset({spec.tenant}))
            pause_s = hold.total_seconds()
            return Judgement(word="refused", hold=hold, without=tenants, pass_over_s=pause_s)
        case ForgeRefused(scope=Scope.REPOSITORY):
            repositories = Without(repositories=frozenset({spec.repository}))
            return Judgement(word="refused", hold=hold, without=repositories)
        case ForgeRefused():
            return Judgement(word="refused", hold=hold, without=this_job)
        case ForgeThrottled(retry_after_s=after_s):
            pause_s = min(max(1.0, after_s), settings.hold_max_s)
            tenants = Without(tenants=frozenset({spec.tenant}))
            pause = timedelta(seconds=pause_s)
            return Judgement(word="throttled", hold=pause, without=tenants, pass_over_s=pause_s)
        case _:
            hold = min(hold, timedelta(seconds=settings.outage_hold_max_s))
            return Judgement(
                word="unavailable", hold=hold, without=this_job, outage=True, registered=None
            )


def hold_of(job: Job, settings: PollSettings) -> timedelta:
    """Return how long a job is held back: doubled each time, so that one that never goes costs ever less."""
    doublings = min(max(0, job.attempts - 1), _DOUBLINGS_MAX)
    return timedelta(seconds=min(settings.hold_max_s, settings.hold_s * 2.0**doublings))


def merged(one: Without, other: Without) -> Without:
    return Without(
        one.tenants | other.tenants,
        one.repositories | other.repositories,
        one.jobs | other.jobs,
    )
