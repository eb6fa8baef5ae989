"""
What should never be, as far as a running fleet can see it. Pure: what was read comes in, sentences go out.

The names are those of the invariants. Reads are snapshots of different moments, so most of what is found here counts
only if it is found again and again (``Sightings``); a key says when two findings are the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.model.job import Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from remuda.model.job import Job, LiveClaim, Os, Session, Standing


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that should not be. It counts once it has been seen for ``grace_s``."""

    invariant: str
    says: str
    grace_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFact:
    """A runner's Pod in our view."""

    name: str
    uid: str
    pool: str
    fit: bool = False
    """Warm, and not asked to leave."""
    stamped: bool = False
    ended: bool = False
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graces:
    """How long the workers may take, each turn included."""

    handed_s: float
    requeued_s: float
    pod_gone_s: float
    stamped_s: float


def single_use(claims: Iterable[LiveClaim], sessions: Iterable[Session]) -> Iterator[Finding]:
    """S1: a job on two runners, or a runner's name on two claims."""
    ran = Counter(s.executed_job_id for s in sessions if s.executed_job_id)
    for job_id, count in sorted(ran.items()):
        if count > 1:
            yield Finding("S1", f"{job_id} was executed by {count} Pods that are still up")
    names = Counter((c.tenant, c.runner_name) for c in claims if c.runner_name)
    for (_, name), count in sorted(names.items()):
        if count > 1:
            yield Finding("S1", f"{count} claims have the runner {name}")


def cut_short(claims: Iterable[LiveClaim], pods: Mapping[str, PodFact]) -> Iterator[Finding]:
    """S2: a runner that executes a job is being deleted. A person may have wanted that; nothing else may."""
    for live in claims:
        pod = _pod_of(live, pods)
        if pod is not None and pod.deleting and not pod.ended and live.executed_at is not None:
            yield Finding("S2", f"{pod.name} is being deleted while it runs {live.claim.job_id}")


def caps(
    standings: Iterable[Standing],
    before: Mapping[tuple[str, Os], Standing],
    claims: Iterable[LiveClaim],
    *,
    grace_s: float,
) -> Iterator[Finding]:
    """S3: more was taken while a tenant was above its limit, or its books do not add up."""
    sums: dict[tuple[str, Os], Size] = {}
    for live in claims:
        key = (live.tenant, live.os)
        sums[key] = sums.get(key, Size(0, 0)).plus(live.size)
    for now in standings:
        key, used = (now.tenant, now.os), now.used
        old = before.get(key)
        # A limit that was set below what is in use ends nothing: only growth above it is wrong.
        if not used.fits(now.limit) and old is not None and not used.fits(old.used):
            yield Finding("S3", f"{now.tenant} took more {now.os.value} while above its limit")
        taken = sums.get(key, Size(0, 0))
        if taken != used:
            says = f"{now.tenant} has {used} {now.os.value} on its books and {taken} in claims"
            yield Finding("S3", says, grace_s)


def not_handed_out(
    queued: Iterable[Job],
    standings: Iterable[Standing],
    pods: Iterable[PodFact],
    *,
    now: datetime,
    grace_s: float,
) -> Iterator[Finding]:
    """V1: a job that may go and a runner that could take it, side by side."""
    warm = Counter(pod.pool for pod in pods if pod.fit and not pod.stamped)
    rooms = {(s.tenant, s.os): s.room for s in standings}
    for job in queued:
        spec = job.spec
        held = job.hold_until is not None and job.hold_until > now
        room = rooms.get((spec.tenant, spec.os), Size(0, 0))
        if warm[spec.pool] and not held and spec.size.fits(room):
            yield Finding("V1", f"{spec.id} waits although {spec.pool} has warm runners", grace_s)


def not_requeued(
    claims: Iterable[LiveClaim], pods: Mapping[str, PodFact], graces: Graces
) -> Iterator[Finding]:
    """V2 and V3: claims that came to nothing, or whose Pod is gone."""
    for live in claims:
        claim, pod = live.claim, _pod_of(live, pods)
        if live.delivered_at is None:
            says = f"{claim.job_id} was claimed at {claim.claimed_at} and not handed over"
            yield Finding("V2", says, graces.requeued_s)
        elif live.executed_at is None and (pod is None or pod.ended):
            says = f"{claim.job_id} waits on {claim.pod}, which ended, since {claim.claimed_at}"
            yield Finding("V2", says, graces.requeued_s)
        if pod is None:
            says = f"the claim of {claim.claimed_at} on {claim.job_id} has no Pod {claim.pod}"
            yield Finding("V3", says, graces.pod_gone_s)


def stamped_alone(
    pods: Iterable[PodFact], occupied: frozenset[str], grace_s: float
) -> Iterator[Finding]:
    """V3: a stamp that nothing stands behind."""
    for pod in pods:
        if pod.stamped and pod.name not in occupied and not pod.ended and not pod.deleting:
            yield Finding("V3", f"{pod.name} ({pod.uid}) is stamped without a claim", grace_s)


def _pod_of(live: LiveClaim, pods: Mapping[str, PodFact]) -> PodFact | None:
    pod = pods.get(live.claim.pod)
    return pod if pod is not None and pod.uid == live.claim.pod_uid else None
