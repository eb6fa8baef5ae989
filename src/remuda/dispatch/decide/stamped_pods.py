"""Decide what becomes of Pods with an owner that nothing stands behind. Pure. No claim is no proof of idleness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.dispatch.decide.recovery import Leave

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from remuda.model.job import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """A Pod with an owner, as the server listed it BEFORE the claims were read."""

    name: str
    uid: str
    version: str
    pool: str
    claim: str
    """What its annotation says; empty if it has none."""
    age_s: float | None
    """None: unreadable."""
    ended: bool = False
    deleting: bool = False
    delivered: bool = False
    """Its own signs say that a job reached it, or may have: the agent's condition, or a poller that ended."""
    warm: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """A new stamp is another case, even on the same Pod."""
        return (self.uid, self.claim)


def unexplained(stamped: Iterable[Stamped], occupied: Collection[str]) -> tuple[Stamped, ...]:
    """
    Return the stamped Pods that nothing stands behind.

    One that ended or is being deleted is the operator's to clear away.
    """
    return tuple(
        pod for pod in stamped if pod.name not in occupied and not pod.ended and not pod.deleting
    )


@dataclass(frozen=True, slots=True)
class Unstamp:
    """It waits for a job and never had one: take the stamp away, and it serves again."""

    pod: Stamped
    why: str


@dataclass(frozen=True, slots=True)
class Reap:
    """It is of no use any more, and idle by two proofs: delete it. The operator removes its ServiceAccount after it."""

    pod: Stamped
    why: str


def mend_stamp(
    pod: Stamped, seen_s: float, *, spent: Session | None, job_over: bool, stamped_s: float
) -> Unstamp | Reap | Leave:
    """
    Say what to do with a stamped Pod that has no claim and no open session.

    ``spent`` is the session that this very Pod had, if any; ``job_over``: what it ran is over. No claim is no proof of
    idleness: the Pod's own signs must agree, or the forge must have said that its job is over.
    """
    if pod.age_s is None or pod.age_s < stamped_s:
        return Leave("it is young, or nobody can tell how old it is")
    if seen_s < stamped_s:
        return Leave(f"it has been seen so for {seen_s:.0f} s only")
    had_job = pod.delivered or spent is not None
    if had_job and not (spent is not None and job_over):
        return Leave("a job may have reached it, and nobody said that it is over")
    if had_job:
        return Reap(pod, "its job is over and its session closed, but it stays")
    if pod.warm:
        return Unstamp(pod, "it is warm, and the claim that it was stamped for is gone")
    return Reap(pod, "it is stamped, not warm, and the claim that it was stamped for is gone")


def capped(
    wanted: Iterable[Reap], pools: Mapping[str, int], *, share: float, at_most: int
) -> tuple[Reap, ...]:
    """Return what may be deleted in one tick: a share of each pool, so many in all. The rest waits for the next."""
    left = {pool: max(1, int(count * share)) for pool, count in pools.items()}
    chosen: list[Reap] = []
    for reap in sorted(wanted, key=lambda reap: (-(reap.pod.age_s or 0.0), reap.pod.name)):
        room = left.get(reap.pod.pool, 1)
        if room > 0 and len(chosen) < at_most:
            left[reap.pod.pool] = room - 1
            chosen.append(reap)
    return tuple(chosen)
