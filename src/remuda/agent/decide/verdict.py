"""
How a Pod ended: from the guest's word, the host's and the record's. Pure.

The guest is hostile: its exit code counts, since it is its own job's; the time it names counts only where it can be
true. A guest that said nothing is never taken for one that succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from remuda.agent.decide.recorded import State, Verdict
from remuda.ports.vms import Ending, RunEnd

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.agent.decide.recorded import VmRecord

UNREPORTED: Final = 1
"""The exit code of a guest that named none."""
_REPORTED: Final = frozenset({"Completed", "Error"})
"""The reasons of those whose guest named its exit code."""
MESSAGE_MAX_CHARS: Final = 1000
"""How much of a log or of a guest's reason goes into a Pod's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestExit:
    """What the guest wrote into ``exit.json`` or ``ended``, after it was checked."""

    code: int
    reason: str = ""
    finished_at: datetime | None = None
    files_note: str = ""
    """Why it packed nothing of what is to come back."""


def settle(
    record: VmRecord, guest: GuestExit | None, end: RunEnd | None, now: datetime, *, deleting: bool
) -> Verdict:
    """Return how it ended. ``end``: None if nothing is known of a run, as where the VM is gone."""
    if guest is not None:
        return _reported(record, guest, end, now)
    reason, message = _unreported(record, end or RunEnd(), deleting=deleting)
    return failed(reason, message, _believable(record, end.at if end else None, now))


def without_files(ended: GuestExit | None, why: str) -> GuestExit | None:
    """Return the end of a job whose guest will not say more: its code is its own, whatever became of its files."""
    return replace(ended, files_note=ended.files_note or why) if ended is not None else None


def is_reported(verdict: Verdict) -> bool:
    """Tell whether the exit code is the job's own, and not ours for a guest that named none."""
    return verdict.reason in _REPORTED


def sent_home(reason: str, now: datetime) -> Verdict:
    """Return the end of a runner that dispatch told to go (410): it did all that was asked of it."""
    message = f"Dispatch sent it home: {reason}" if reason else "Dispatch sent it home"
    message = message[:MESSAGE_MAX_CHARS]
    return Verdict(
        succeeded=True, exit_code=0, reason="Completed", message=message, finished_at=now
    )


def failed(reason: str, message: str, at: datetime) -> Verdict:
    """Return the end of a Pod that fails by our own word."""
    return Verdict(
        succeeded=False,
        exit_code=UNREPORTED,
        reason=reason,
        message=message[:MESSAGE_MAX_CHARS],
        finished_at=at,
    )


def _reported(record: VmRecord, guest: GuestExit, end: RunEnd | None, now: datetime) -> Verdict:
    ended_at = _believable(record, end.at if end else None, now)
    at = guest.finished_at
    believed = at is not None and (record.started_at or record.accepted_at) <= at <= ended_at
    return Verdict(
        succeeded=guest.code == 0,
        exit_code=guest.code,
        reason="Completed" if guest.code == 0 else "Error",
        message=guest.reason[:MESSAGE_MAX_CHARS],
        finished_at=at if at is not None and believed else ended_at,
        files_note=guest.files_note,
    )


def _believable(record: VmRecord, at: datetime | None, now: datetime) -> datetime:
    """Clocks jump: an end before its beginning, or after now, is no end."""
    began = record.started_at or record.accepted_at
    return at if at is not None and began <= at <= now else max(now, began)


def _unreported(record: VmRecord, end: RunEnd, *, deleting: bool) -> tuple[str, str]:
    if record.state in {State.CLONING, State.CLONED}:
        return "NeverStarted", "It ended before its VM was started"
    if deleting:
        return "Deleted", "It was deleted before its guest reported an end"
    if end.how is Ending.CRASHED:
        return "VmCrashed", end.why or "Its VM crashed"
    if end.how is Ending.NEVER_BOOTED or record.ready_at is None:
        return "StartFailed", end.why or "Its VM ended before its guest was ready"
    if record.state is State.STARTED and end.how is Ending.HALTED:
        return "NoJob", "Its guest powered off without a job"
    return "NoExitReported", "Its VM ended and its guest reported no exit code"
