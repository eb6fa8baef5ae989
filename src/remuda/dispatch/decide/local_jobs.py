"""
Decide how far a local job is, how it ended, and whether its runner must stop. Pure.

A script runs at most once. It runs only after its Pod was let begin, so a job that was not begun certainly never ran;
one that began is never given to another Pod, whatever became of the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from remuda.model.output import Output
from remuda.ports.local_jobs import LocalEnd

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.model.job import LiveClaim, Session
    from remuda.ports.local_jobs import LocalJob

SUCCESS: Final = "success"
FAILURE: Final = "failure"
CANCELLED: Final = "cancelled"
TIMED_OUT: Final = "timed_out"
LOST: Final = "lost"
"""It began, and nobody can say how it ended: its runner is gone."""
_MADE_UP: Final = frozenset(
    {
        *("Cancelled", "DeadlineExceeded", "Deleted", "DiskSpent", "FilesSpoilt", "GuestNotReady"),
        *("GuestTooOld", "JobLost", "MailboxLost", "MailboxOverfull", "NeverStarted"),
        *("NoExitReported", "NoJob", "NoToken", "NotOurs", "RecordUnreadable", "StartFailed"),
        *("TokenRefused", "VmCrashed"),
    }
)
"""An agent's reasons for the end of a Pod whose guest named no exit code: the Pod must have one, the job has none."""
TOLD_WITHIN: Final = timedelta(seconds=120)
"""
How long to wait for the word of an agent whose Pod's end was known first: it stops the VM and then tries for a minute.
"""
_NO_CODE: Final = 1
"""What stands for the exit code of a job that named none: it did not succeed."""


@dataclass(frozen=True, slots=True)
class Waits:
    """It was not begun: it may be given to any Pod."""


@dataclass(frozen=True, slots=True)
class Runs:
    """A Pod that is there for all we know runs it."""


Far = Waits | Runs | LocalEnd


def how_far(job: LocalJob, claim: LiveClaim | None, session: Session | None, now: datetime) -> Far:
    """Say how far a job is. ``claim`` and ``session`` are those of the Pod that began it, if it has any."""
    if job.end is not None:
        return job.end
    if not job.begun_by:
        if job.cancelled_at is None:
            return Waits()
        # Who was not let begin by now never will be, even with the script in its hands.
        return LocalEnd(conclusion=CANCELLED, at=now, reason="cancelled before it began")
    if session is not None and session.pod_uid == job.begun_by and session.ended_at is not None:
        return _end_of_pod(job, session, now)
    alive = any(uid == job.begun_by for uid in _uids(claim, session))
    if alive:
        return Runs()
    why = "nothing is known of its runner any more"
    return LocalEnd(conclusion=LOST, at=now, reason=why, more_until=now)


def _uids(claim: LiveClaim | None, session: Session | None) -> tuple[str, ...]:
    return (
        *((claim.claim.pod_uid,) if claim is not None else ()),
        *((session.pod_uid,) if session is not None else ()),
    )


def _end_of_pod(job: LocalJob, session: Session, now: datetime) -> LocalEnd:
    """
    Read the end of a job off the end of its Pod: its own word did not come.

    With an exit code its agent lives, if it has one, and has the last of the output to tell. Without a code nobody is
    left to tell any.
    """
    assert session.ended_at is not None
    code, at, reason = session.exit_code, session.ended_at, session.end_reason
    if code is not None:
        deadline = deadline_of(job, session.started_at)
        if reason not in _MADE_UP:
            end = exit_of(job, code, reason, at=at, deadline=deadline)
        else:  # as by the agent's own word, whichever comes first
            made_up = exit_of(job, _NO_CODE, reason, at=at, deadline=deadline)
            end = replace(made_up, exit_code=None)
        return replace(end, more_until=now + TOLD_WITHIN) if job.tells_end else end
    conclusion = LOST if job.cancelled_at is None else CANCELLED
    return LocalEnd(
        conclusion=conclusion, at=at, reason=reason or "its runner is gone", more_until=at
    )


def output_of(job: LocalJob, now: datetime) -> Output:
    """Say whether what a job printed is all here."""
    if job.end is None:
        return Output.GROWING
    if job.end.more_until is None:
        return Output.FINAL
    return Output.AWAITED if now < job.end.more_until else Output.UNCONFIRMED


def exit_of(
    job: LocalJob, code: int, reason: str, *, at: datetime, deadline: datetime | None
) -> LocalEnd:
    """Say how a job ended that exited so. Who exits with 0 has done its work, whoever wanted it to stop."""
    conclusion = FAILURE
    if code == 0:
        conclusion = SUCCESS
    elif job.cancelled_at is not None and job.cancelled_at <= at:
        conclusion = CANCELLED
    elif deadline is not None and deadline <= at:
        conclusion = TIMED_OUT
    return LocalEnd(conclusion=conclusion, at=at, exit_code=code, reason=reason)


def deadline_of(job: LocalJob, claimed_at: datetime | None) -> datetime | None:
    """Return when a job must be over: its time runs from the claim. None: it has not been claimed."""
    begins = claimed_at or job.started_at
    return None if begins is None else begins + timedelta(seconds=job.timeout_s)


def stop_reason(job: LocalJob, deadline: datetime | None, now: datetime) -> str:
    """Say why a runner must stop its job; empty if it may go on."""
    if job.end is not None:
        return f"the job is over: {job.end.conclusion}"
    if job.cancelled_at is not None:
        return "the job was cancelled"
    if is_overdue(job, deadline, now):
        return f"the job may run for {job.timeout_s} s, and that time is over"
    return ""


def is_overdue(job: LocalJob, deadline: datetime | None, now: datetime) -> bool:
    """Tell whether a job must stop for no other reason than that its time is over."""
    if job.end is not None or job.cancelled_at is not None:
        return False
    return deadline is not None and deadline <= now


def within(moment: datetime | None, earliest: datetime | None, now: datetime) -> datetime:
    """Return a time that a runner gave, bounded by what we know: its clock may be wrong, or its guest may lie."""
    bounded = min(moment or now, now)
    return bounded if earliest is None else max(bounded, earliest)
