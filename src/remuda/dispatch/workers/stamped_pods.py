"""
Pods that carry an owner while nothing stands behind it: they look busy for ever, and pin their room.

The Pods are listed before the claims are read: a Pod that was stamped after its claim was made is never taken for one
without. Each act says what it saw, so a stamp that comes in between wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from remuda.dispatch.decide.recovery import Leave, Sightings
from remuda.dispatch.decide.stamped_pods import (
    Reap,
    Stamped,
    Unstamp,
    capped,
    mend_stamp,
    unexplained,
)
from remuda.dispatch.workers.pods import CALL_S
from remuda.dispatch.workers.turning import each
from remuda.kube.core import POD
from remuda.kube.names import CLAIM, OWNER, POOL, RUNNER
from remuda.kube.patches import MergePatch
from remuda.kube.runner_view import is_busy, runner_of
from remuda.model.job import JobState
from remuda.model.runner import Phase
from remuda.ports.kube import Conflict, NotFound, Query, Seen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.kube.core import Pod

log = structlog.get_logger(__name__)

NAME: Final = "stamped-pods"
_HELD_LOOKED_AT: Final = 500


class StampedPods:
    """Takes the stamp off a runner that waits unharmed, and deletes one that is of no use: its Pod alone."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts, self._settings = parts, parts.settings.recovery
        self._kube = parts.kube.within(CALL_S)
        # With a gap between two looks, nobody knows that it was so all the time.
        self._seen: Sightings[tuple[str, str]] = Sightings(
            gap_max_s=max(60.0, self._settings.tick_s * 3)
        )

    async def tick(self) -> float:
        parts, tick_s = self._parts, self._settings.tick_s
        stamped = await self._list()
        occupied = await parts.views.occupied_pods() if stamped else frozenset()
        found = unexplained(stamped, occupied)
        for_s = self._seen.look((pod.key for pod in found), parts.clock.monotonic())
        due = [pod for pod in found if for_s[pod.key] >= self._settings.stamped_s]
        acts = [await self._judge(pod, for_s[pod.key]) for pod in due]
        most = self._settings.actions_max
        unstamps = [act for act in acts if isinstance(act, Unstamp)][:most]
        await each(parts, NAME, unstamps, self._unstamp)
        reaps = await self._allowed([act for act in acts if isinstance(act, Reap)], for_s)
        await each(parts, NAME, reaps, self._reap)
        return tick_s

    async def _list(self) -> tuple[Stamped, ...]:
        query = Query(namespace=self._parts.settings.namespace, labels=f"{RUNNER}=true,{OWNER}")
        listing = await self._parts.kube.list(POD, query)
        now = self._parts.clock.now()
        return tuple(stamped(pod, now) for pod in listing.items)

    async def _judge(self, pod: Stamped, seen_s: float) -> Unstamp | Reap | Leave:
        """Look once more at what stands behind a Pod, now that its time has come."""
        views = self._parts.views
        if await views.claim_of(pod.name) is not None:
            return Leave("it has a claim")
        session = await views.session_of(pod.name)
        spent = session if session is not None and session.pod_uid == pod.uid else None
        if spent is not None and spent.ended_at is None:
            return Leave("it has an open session")
        ran = (spent.executed_job_id or spent.job_id) if spent is not None else ""
        job_over = bool(ran) and ran in await views.completions([ran])
        grace_s = self._settings.stamped_s
        return mend_stamp(pod, seen_s, spent=spent, job_over=job_over, stamped_s=grace_s)

    async def _allowed(
        self, reaps: list[Reap], for_s: Mapping[tuple[str, str], float]
    ) -> tuple[Reap, ...]:
        """Hold deletes back for a while if the forge fails: then it is perhaps not the runners that are broken."""
        if not reaps:
            return ()
        settings = self._settings
        now = self._parts.clock.now()
        queued = await self._parts.views.jobs(states={JobState.QUEUED}, limit=_HELD_LOOKED_AT)
        held = sum(job.hold_until is not None and job.hold_until > now for job in queued)
        if held > settings.reap_held_max:
            old = [reap for reap in reaps if for_s[reap.pod.key] >= settings.reap_held_s]
            why, kept = f"{held} jobs are held back: the forge fails", len(reaps) - len(old)
            log.warning("stamped runners are not deleted yet", why=why, runners=kept)
            reaps = old
        pools = {reap.pod.pool for reap in reaps}
        sizes = {pool: len(self._parts.view.pods_of(pool)) for pool in sorted(pools)}
        return capped(reaps, sizes, share=settings.reap_share, at_most=settings.actions_max)

    async def _unstamp(self, act: Unstamp) -> None:
        pod = act.pod
        patch = MergePatch(
            {
                "metadata": {
                    "uid": pod.uid,
                    "resourceVersion": pod.version,
                    "labels": {OWNER: None},
                    "annotations": {CLAIM: None},
                }
            }
        )
        try:
            await self._kube.patch(POD, pod.name, patch, namespace=self._parts.settings.namespace)
        except (NotFound, Conflict):
            return  # gone, or not what was seen: the next look tells
        self._mended(pod, act.why, "stamp taken off")

    async def _reap(self, act: Reap) -> None:
        """Delete a Pod. Its ServiceAccount is the operator's: its agent speaks with that until the Pod is gone."""
        pod, namespace = act.pod, self._parts.settings.namespace
        seen = Seen(uid=pod.uid, resource_version=pod.version)
        try:
            await self._kube.delete(POD, pod.name, namespace=namespace, seen=seen)
        except NotFound:
            pass
        except Conflict:
            return
        self._mended(pod, act.why, "stamped runner deleted")

    def _mended(self, pod: Stamped, why: str, what: str) -> None:
        self._parts.metrics.recovered("orphaned_stamped_pod")
        log.warning(what, pod=pod.name, pool=pod.pool, stamp=pod.claim, why=why)


def stamped(pod: Pod, now: datetime) -> Stamped:
    """Return what a stamped Pod says about itself. Its own signs of a job are those of any Pod without the owner."""
    meta = pod.metadata
    bare = _without_owner(pod)
    created = meta.creation_timestamp
    return Stamped(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        pool=meta.labels.get(POOL, ""),
        claim=meta.annotations.get(CLAIM, ""),
        age_s=(now - created).total_seconds() if created is not None else None,
        ended=runner_of(pod).phase is Phase.ENDED,
        deleting=meta.deletion_timestamp is not None,
        delivered=is_busy(bare),
        warm=runner_of(bare).phase is Phase.WARM,
    )


def _without_owner(pod: Pod) -> Pod:
    labels = {key: value for key, value in pod.labels.items() if key != OWNER}
    return replace(pod, metadata=replace(pod.metadata, labels=labels))
