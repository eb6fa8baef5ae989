"""
Dispatch without a forge: the jobs and claims that outlive its server, as the operator and the hosts see them.

It is written as if nothing ever failed; ``sim.port.faulty_port`` puts it behind each actor's line. What acts on it, and
on Pods, is ``dispatch_server``. It is the world's truth about jobs: checkers read it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.control.cache import Key
from remuda.kube.names import POOL
from remuda.ports.dispatch import DispatchError, Signals, Stopped
from remuda.sim.fleet.desk import HOLD_S, Deliver, Told
from remuda.sim.port import PortFaults, faulty_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.kube.core import Pod
    from remuda.sim.fleet.desk import Job
    from remuda.sim.link import Link

POLL_TIMEOUT_S = HOLD_S + 10.0
CALL_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Claim:
    """A job that was given to a runner. It is handed over only once the runner's Pod carries its owner."""

    job: Job
    pod: Key
    pod_uid: str
    pool: str
    stamped: bool = False


@dataclass(slots=True)
class Poll:
    """A warm runner that waits for an answer."""

    pod: Key
    pod_uid: str
    pool: str
    answer: asyncio.Future[Told] = field(repr=False)


class FakeDispatch:
    """Jobs, claims and who waits. Implements ``ports.dispatch.Dispatch`` and ``fleet.desk.Desk``."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.jobs: dict[str, Job] = {}
        self.queue: list[Job] = []
        self.claims: dict[str, Claim] = {}
        """By the UID of the Pod."""
        self.polls: dict[str, Poll] = {}
        self.serves: dict[str, str] = {}
        """Under which name a pool's jobs are queued, where that is not its own: a renamed pool has the old labels."""
        self.limits: dict[str, int] = {}
        """How many jobs of a tenant may run at once."""
        self.withheld: set[str] = set()
        """Jobs that were over their tenant's limit when somebody last looked: only a waiting runner makes one look."""
        self.hides_withheld = False
        """The mistake of the field: demand that is withheld is not told at all."""
        self.is_down = False
        self.lies_when_down = False
        """A mistake to be seen: while it is away it says that nothing waits, instead of nothing."""
        self.reports: dict[str, Stopped] = {}
        self.bell = asyncio.Event()
        """Rung when there is something for the server to do."""

    # --- the forge's side ---------------------------------------------------------------------------------------

    def enqueue(self, job: Job) -> None:
        job.queued_at = self._now()
        self.jobs[job.name] = job
        self.queue.append(job)
        if self._is_over_limit(job):
            self.withheld.add(job.name)
        self.bell.set()

    def unfinished(self) -> list[Job]:
        """Return the jobs that still wait or run; a killed one does neither."""
        now = self._now()
        return [j for j in self.jobs.values() if not j.is_done(now) and j.killed_at is None]

    def killed(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.killed_at is not None]

    def running(self, pod_uid: str) -> Job | None:
        """Return the job that runs on a runner right now."""
        claim = self.claims.get(pod_uid)
        return claim.job if claim is not None and claim.job.is_running(self._now()) else None

    # --- the operator's side ------------------------------------------------------------------------------------

    async def signals(self, pool: str) -> Signals:
        if self.is_down and self.lies_when_down:
            return Signals()
        self._be_up()
        served, now = self.serves.get(pool, pool), self._now()
        waiting = [job for job in self.queue if job.pool == served]
        queued = [job for job in waiting if job.name not in self.withheld]
        claims = [claim for claim in self.claims.values() if claim.pool == pool]
        return Signals(
            queued=len(queued),
            claimed=sum(not claim.job.is_done(now) for claim in claims),
            occupied=len(claims),
            withheld=0 if self.hides_withheld else len(waiting) - len(queued),
            oldest_queued_s=max((now - job.queued_at for job in queued), default=0.0),
        )

    async def stopped(self, pod: str, report: Stopped) -> None:
        self._be_up()
        self.reports[pod] = report

    # --- the hosts' side ----------------------------------------------------------------------------------------

    async def poll(self, pod: Pod) -> Told:
        self._be_up()
        claim = self.claims.get(pod.uid)
        if claim is not None and claim.stamped:
            return Deliver(claim.job)  # the answer to an earlier poll was lost
        loop = asyncio.get_running_loop()
        key, pool = Key(pod.namespace, pod.name), pod.labels.get(POOL, "")
        poll = Poll(key, pod.uid, pool, loop.create_future())
        self.polls[pod.uid] = poll
        self.bell.set()
        timer = loop.call_later(HOLD_S, self.answer, poll, None)
        try:
            return await poll.answer
        finally:
            timer.cancel()
            if self.polls.get(pod.uid) is poll:
                del self.polls[pod.uid]

    def answer(self, poll: Poll, told: Told) -> None:
        if not poll.answer.done():
            poll.answer.set_result(told)

    # --- the server's side --------------------------------------------------------------------------------------

    def match(self) -> None:
        """Claim a job for each runner that waits, first come, first served. No I/O: one transaction."""
        free = [p for p in self.polls.values() if p.pod_uid not in self.claims]
        for poll in free:
            served = self.serves.get(poll.pool, poll.pool)
            for job in [j for j in self.queue if j.pool == served]:
                if self._is_over_limit(job):
                    self.withheld.add(job.name)
                    continue
                self.withheld.discard(job.name)
                self.queue.remove(job)
                self.claims[poll.pod_uid] = Claim(job, poll.pod, poll.pod_uid, poll.pool)
                break

    def release(self, claim: Claim) -> None:
        """Give a job back that was not handed over. It waits no longer than those that came after it."""
        if self.claims.get(claim.pod_uid) is not claim:
            return  # another part of the server was faster
        assert claim.job.started_at is None, "a job that began is not given back"
        del self.claims[claim.pod_uid]
        self.queue.insert(0, claim.job)
        self.bell.set()

    def _is_over_limit(self, job: Job) -> bool:
        limit = self.limits.get(job.owner)
        if limit is None:
            return False
        now = self._now()
        held = Counter(c.job.owner for c in self.claims.values() if not c.job.is_done(now))
        return held[job.owner] >= limit

    def _be_up(self) -> None:
        if self.is_down:
            raise _error("dispatch is down")


def behind(
    link: Link, dispatch: FakeDispatch, *, timeout_s: float = CALL_TIMEOUT_S
) -> FakeDispatch:
    """Return dispatch as it is reached over an actor's line."""
    faults = PortFaults(port="dispatch", timeout_s=timeout_s, unknown=_error, refused=_error)
    return faulty_port(dispatch, link, faults)


def _error(why: str) -> DispatchError:
    return DispatchError("Dispatch was not reached", why=why, fix="Try again")
