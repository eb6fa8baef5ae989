"""Decide which claims and sessions have lost their Pod, or their job. Pure. Half a list proves nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from remuda.model.job import Completion, LiveClaim, Session


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A Pod in a full list."""

    uid: str
    ended: bool = False
    ended_at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What a full list says about the Pods behind claims and sessions, which were read before it."""

    back: tuple[LiveClaim, ...] = ()
    """Noted as missing, and there."""
    news: tuple[LiveClaim, ...] = ()
    """Not there, for the first time."""
    absent: tuple[LiveClaim, ...] = ()
    """Noted as missing, and still not there."""
    ended: tuple[LiveClaim, ...] = ()
    """There, but it stopped: that is for ever, and needs no second look."""
    absent_sessions: tuple[Session, ...] = ()
    ended_sessions: tuple[Session, ...] = ()


def missing(
    claims: Collection[LiveClaim], sessions: Collection[Session], pods: Mapping[str, PodSeen]
) -> Missing:
    """Compare. A Pod of the same name with another UID is another Pod: the one that is meant is gone."""
    there = [live for live in claims if _is_there(live.claim.pod, live.claim.pod_uid, pods)]
    gone = [live for live in claims if live not in there]
    alive = [live for live in there if not pods[live.claim.pod].ended]
    held = {live.claim.pod_uid for live in claims}
    # A session whose claim stands goes with its claim.
    alone = [session for session in sessions if session.pod_uid not in held]
    stood = [session for session in alone if _is_there(session.pod, session.pod_uid, pods)]
    return Missing(
        back=tuple(live for live in alive if live.missing_since is not None),
        news=tuple(live for live in gone if live.missing_since is None),
        absent=tuple(live for live in gone if live.missing_since is not None),
        ended=tuple(live for live in there if live not in alive),
        absent_sessions=tuple(session for session in alone if session not in stood),
        ended_sessions=tuple(session for session in stood if pods[session.pod].ended),
    )


def _is_there(pod: str, uid: str, pods: Mapping[str, PodSeen]) -> bool:
    seen = pods.get(pod)
    return seen is not None and seen.uid == uid


def ended_at_most(
    session: Session | None,
    over: Mapping[str, Completion],
    *,
    unseen_since: datetime,
    now: datetime,
) -> datetime:
    """
    Return the end of a Pod that nobody saw end.

    Its job's end if that is known (the executed one outranks the claimed one), else when it was first missed; never in
    the future and never before it began.
    """
    ends = unseen_since
    if session is not None:
        for job_id in (session.executed_job_id, session.job_id):
            if job_id in over:
                ends = over[job_id].ended_at
                break
    ends = min(ends, now)
    return ends if session is None else max(ends, session.started_at)


def outlived(claims: Iterable[LiveClaim], over: Collection[str]) -> tuple[LiveClaim, ...]:
    """Return the claims whose job is over. The job of a claim is the one that its runner executes, once proven."""
    return tuple(live for live in claims if live.claim.job_id in over)
