"""
Claims and sessions whose Pod ended or is gone, although nobody reported it.

Claims are read before the Pods are listed, so a Pod that is not in the list was there before it. A Pod must be missing
from two full lists some time apart, and the server must say once more that there is none, before anything ends.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.decide.pods_gone import ended_at_most, missing
from remuda.dispatch.decide.recovery import Doubt, Evidence, Inquiries, PodState, Sightings
from remuda.dispatch.workers.inquiry import BY, Inquiry
from remuda.dispatch.workers.pods import all_pods, state_now
from remuda.dispatch.workers.turning import each
from remuda.ports.jobs import PodEnd

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from remuda.dispatch.decide.pods_gone import Missing, PodSeen
    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.model.job import Claim, LiveClaim, Session

log = structlog.get_logger(__name__)

NAME: Final = "missing-pods"
_SESSIONS_MAX: Final = 20_000
_GONE: Final = "its Pod is gone"


class MissingPods:
    """Ends what stands on a Pod that does not. The jobs are asked about at once."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts, self._settings = parts, parts.settings.recovery
        self._absent: Sightings[tuple[Claim, object]] = Sightings()
        self._alone: Sightings[str] = Sightings()
        self._inquiry = Inquiry(parts, Inquiries(self._settings), NAME)

    async def tick(self) -> float:
        views, tick_s = self._parts.views, self._settings.tick_s
        claims = await views.claims()
        sessions = await views.sessions(limit=_SESSIONS_MAX)
        if not claims and not sessions:
            return tick_s
        pods = await all_pods(self._parts)
        if pods is None:
            return tick_s
        found = missing(claims, sessions, pods)
        await self._note(found)
        left = await self._end_claims(found, pods)
        await self._end_sessions(found, pods, left)
        return tick_s

    async def _note(self, found: Missing) -> None:
        if found.back or found.news:
            await self._parts.store.sight_pods(
                present=[live.claim for live in found.back],
                absent=[live.claim for live in found.news],
                by=BY,
            )

    async def _end_claims(self, found: Missing, pods: Mapping[str, PodSeen]) -> int:
        """Return how many more things may be ended in this turn."""
        now = self._parts.clock.monotonic()
        for_s = self._absent.look(((c.claim, c.missing_since) for c in found.absent), now)
        due = [
            live
            for live in found.absent
            if for_s[live.claim, live.missing_since] >= self._settings.pod_gone_s
        ]

        async def stopped(live: LiveClaim) -> None:
            await self._stopped(live, pods[live.claim.pod])

        async def vanished(live: LiveClaim) -> None:
            await self._vanished(live, for_s[live.claim, live.missing_since])

        most = self._settings.actions_max
        await each(self._parts, NAME, found.ended[:most], stopped)
        left = most - len(found.ended[:most])
        await each(self._parts, NAME, due[:left], vanished)
        return left - len(due[:left])

    async def _end_sessions(
        self, found: Missing, pods: Mapping[str, PodSeen], at_most: int
    ) -> None:
        now = self._parts.clock.monotonic()
        for_s = self._alone.look((s.pod_uid for s in found.absent_sessions), now)
        grace_s = self._settings.pod_gone_s
        due = [s for s in found.absent_sessions if for_s[s.pod_uid] >= grace_s]

        async def close(session: Session) -> None:
            seen = pods.get(session.pod)
            stopped = seen if seen is not None and seen.uid == session.pod_uid else None
            await self._close(session, stopped, for_s.get(session.pod_uid, 0.0))

        await each(self._parts, NAME, (*found.ended_sessions, *due)[:at_most], close)

    async def _stopped(self, live: LiveClaim, seen: PodSeen) -> None:
        """End a claim whose Pod the list shows stopped: a Pod never starts again."""
        end = PodEnd(
            pod=live.claim.pod,
            pod_uid=live.claim.pod_uid,
            ended_at=seen.ended_at or self._parts.clock.now(),
            by=BY,
            exit_code=seen.exit_code,
            reason=seen.reason or "its Pod stopped",
        )
        await self._end(end, "pod_missing_claim")

    async def _vanished(self, live: LiveClaim, for_s: float) -> None:
        claim = live.claim
        if await state_now(self._parts, claim.pod, claim.pod_uid) is not PodState.ENDED:
            return
        session = await self._parts.views.session_of(claim.pod)
        ours = session if session is not None and session.pod_uid == claim.pod_uid else None
        end = PodEnd(
            pod=claim.pod,
            pod_uid=claim.pod_uid,
            missing_since=live.missing_since,
            ended_at=await self._end_of(ours, for_s),
            by=BY,
            reason=_GONE,
        )
        await self._end(end, "pod_missing_claim")

    async def _close(self, session: Session, seen: PodSeen | None, for_s: float) -> None:
        if seen is None:
            state = await state_now(self._parts, session.pod, session.pod_uid)
            if state is not PodState.ENDED:
                return
        at = seen.ended_at if seen is not None else None
        end = PodEnd(
            pod=session.pod,
            pod_uid=session.pod_uid,
            ended_at=at or await self._end_of(session, for_s),
            by=BY,
            exit_code=seen.exit_code if seen is not None else None,
            reason=(seen.reason if seen is not None else "") or _GONE,
        )
        await self._end(end, "orphaned_session")

    async def _end_of(self, session: Session | None, for_s: float) -> datetime:
        now = self._parts.clock.now()
        ids = {session.executed_job_id, session.job_id} - {""} if session is not None else set()
        over = await self._parts.views.completions(ids) if ids else {}
        since = now - timedelta(seconds=for_s)
        return ended_at_most(session, over, unseen_since=since, now=now)

    async def _end(self, end: PodEnd, kind: str) -> None:
        stopped = await self._parts.store.stop_pod(end)
        if stopped.released is None and stopped.session is None:
            return  # it was seen again, or somebody else ended it
        self._parts.metrics.recovered(kind)
        log.warning("nothing is left of a Pod", pod=end.pod, why=end.reason, kind=kind)
        for job in stopped.in_doubt:
            await self._inquiry.about(Doubt(job, Evidence.POD_ENDED))
