"""
Dispatch's API in memory: what there is is set by the test, and a server can go and come back.

    api = MemoryApi(pools=(a_pool("linux"),))
    api.is_down = True
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from remuda.model.job import JobState
from remuda.ports.api import (
    ALL_EVENTS,
    ALL_JOBS,
    ApiFault,
    ApiNotFound,
    ApiUnavailable,
    Cancellation,
    ClaimRow,
    Event,
    Explanation,
    HostRow,
    JobRow,
    LimitRow,
    Outcome,
    PodRow,
    PoolDetail,
    PoolRow,
    PoolWork,
    RunnerCounts,
    RunnerRow,
    Submitted,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from remuda.ports.api import Condition, EventsWanted, JobsWanted, NewJob, Subject

T = TypeVar("T")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


def a_pool(  # noqa: PLR0913 - one for each thing that a pool counts
    name: str,
    *,
    warm: int = 0,
    busy: int = 0,
    starting: int = 0,
    leaving: int = 0,
    wanted: int | None = None,
    paused: bool = False,
    roll: tuple[int, int, int] = (0, 0, 1),
    conditions: tuple[Condition, ...] = (),
) -> PoolRow:
    """Return a pool; ``roll`` is how many are stale, how many are away, and how many may be."""
    counts = RunnerCounts(warm=warm, busy=busy, starting=starting, terminating=leaving)
    wanted = warm + busy + starting if wanted is None else wanted
    stale, rolling, cap = roll
    return PoolRow(
        name=name,
        replicas=wanted,
        runners=counts,
        paused=paused,
        stale=stale,
        rolling=rolling,
        roll_cap=cap,
        labels=(name,),
        image="golden",
        conditions=conditions,
        created_at=ago(3600),
    )


def a_runner(name: str, phase: str = "warm", *, job: str = "", node: str = "mini-1") -> RunnerRow:
    pod = PodRow(uid=name, phase=phase, node=node, created_at=ago(90))
    claim = ClaimRow(job_id=job, pod=name, claimed_at=ago(60)) if job else None
    return RunnerRow(name=name, pool=name.split("-", maxsplit=1)[0], pod=pod, claim=claim)


def a_host(name: str, *, runners: int = 0, vms: int = 2, why_not: str = "") -> HostRow:
    return HostRow(
        name=name,
        healthy=not why_not,
        why_not=why_not,
        runners=runners,
        runtime="process",
        allocatable={"remuda.dev/vm": str(vms)},
        created_at=ago(86400),
    )


def a_job(
    name: str,
    state: JobState = JobState.QUEUED,
    *,
    queued_s: float = 60,
    started_s: float | None = None,
    ended_s: float | None = None,
    conclusion: str = "",
) -> JobRow:
    """Return a job; each time is how long ago it was."""
    return JobRow(
        id=name,
        state=state,
        pool="linux",
        name=f"the {name}",
        queued_at=ago(queued_s),
        started_at=None if started_s is None else ago(started_s),
        ended_at=None if ended_s is None else ago(ended_s),
        conclusion=conclusion,
    )


def an_event(number: int, what: str = "claimed", **more: str) -> Event:
    return Event(number=number, at=ago(100 - number), what=what, who="dispatch", **more)


@dataclass
class MemoryApi:
    """Fills ``remuda.ports.api.Api``."""

    pools_: Sequence[PoolRow] = ()
    runners_: Sequence[RunnerRow] = ()
    hosts_: Sequence[HostRow] = ()
    jobs_: Sequence[JobRow] = ()
    events_: list[Event] = field(default_factory=list)
    not_ready: str = ""
    is_down: bool = False
    is_stuck: bool = False
    """It takes questions and never answers."""
    no_stream: bool = False
    """Events cannot be followed, as behind a proxy that keeps them back."""
    sent_: dict[str, bytes] = field(default_factory=dict)
    """Archives by their names."""
    looks: int = 0
    """How often the pools were asked for."""
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def happen(self, event: Event) -> None:
        """Tell whoever follows."""
        self.events_.append(event)
        self._more.set()
        self._more = asyncio.Event()

    async def _answer(self, what: str) -> None:
        await asyncio.sleep(0)
        if self.is_stuck:
            await asyncio.Event().wait()
        if self.is_down:
            raise ApiUnavailable(
                f"The {what} could not be listed", why="nobody is there", fix="wait"
            )

    async def jobs(
        self, wanted: JobsWanted = ALL_JOBS, *, limit: int | None = None
    ) -> tuple[JobRow, ...]:
        await self._answer("jobs")
        found = sorted(self.jobs_, key=lambda job: job.queued_at, reverse=True)
        states = wanted.states or tuple(JobState)
        pool = wanted.pool
        return tuple(j for j in found if j.state in states and pool in {"", j.pool})[:limit]

    async def job(self, job_id: str) -> JobRow:
        await self._answer("jobs")
        return _named(self.jobs_, "job", job_id, lambda job: job.id)

    async def runners(self, *, pool: str = "", limit: int | None = None) -> tuple[RunnerRow, ...]:
        await self._answer("runners")
        return tuple(runner for runner in self.runners_ if pool in {"", runner.pool})[:limit]

    async def runner(self, name: str) -> RunnerRow:
        await self._answer("runners")
        return _named(self.runners_, "runner", name, lambda runner: runner.name)

    async def claims(self) -> tuple[ClaimRow, ...]:
        await self._answer("claims")
        return tuple(runner.claim for runner in self.runners_ if runner.claim is not None)

    async def pools(self) -> tuple[PoolRow, ...]:
        await self._answer("pools")
        self.looks += 1
        return tuple(self.pools_)

    async def pool(self, name: str) -> PoolDetail:
        await self._answer("pools")
        queued = [j for j in self.jobs_ if j.pool == name and j.state is JobState.QUEUED]
        found = _named(self.pools_, "pool", name, lambda pool: pool.name)
        return PoolDetail(pool=found, signals=PoolWork(queued=len(queued)))

    async def hosts(self) -> tuple[HostRow, ...]:
        await self._answer("hosts")
        return tuple(self.hosts_)

    async def limits(self, *, tenant: str = "") -> tuple[LimitRow, ...]:
        del tenant
        await self._answer("limits")
        return ()

    async def explain(self, subject: Subject, name: str) -> Explanation:
        await self._answer("explanations")
        return Explanation(subject=name, why="known", sentence=f"So it is with {subject}/{name}.")

    async def explain_labels(self, labels: tuple[str, ...], *, fork: bool = False) -> Explanation:
        del fork
        await self._answer("explanations")
        return Explanation(subject=",".join(labels), why="known", sentence="So it is.")

    async def audit(
        self, *, after: int = 0, job_id: str = "", limit: int | None = None
    ) -> tuple[Event, ...]:
        await self._answer("events")
        kept = (e for e in self.events_ if e.number > after and job_id in {"", e.job_id})
        return tuple(kept)[:limit]

    async def newest_event(self) -> int:
        await self._answer("events")
        return self.events_[-1].number if self.events_ else 0

    async def events(
        self,
        wanted: EventsWanted = ALL_EVENTS,
        *,
        trouble: Callable[[ApiUnavailable], None] | None = None,
    ) -> AsyncGenerator[Event, None]:
        del trouble
        if self.no_stream:
            raise ApiFault("The events could not be followed", why="a proxy is between", fix="none")
        last = await self.newest_event() if wanted.after is None else wanted.after
        while True:
            for event in [e for e in self.events_ if e.number > last]:
                last = event.number
                yield event
            await self._more.wait()

    async def submit(self, job: NewJob, *, key: str) -> Submitted:
        await self._answer("jobs")
        row = JobRow(id=key, state=JobState.QUEUED, pool=job.pool, name=job.name, queued_at=NOON)
        self.jobs_ = (*self.jobs_, row)
        return Submitted(id=key, pool=job.pool, state=JobState.QUEUED, submitted_at=NOON)

    async def cancel(self, job_id: str) -> Cancellation:
        await self.job(job_id)
        self.jobs_ = tuple(job for job in self.jobs_ if job.id != job_id)
        return Cancellation.CANCELLED

    async def outcome(self, job_id: str) -> Outcome:
        job = await self.job(job_id)
        return Outcome(id=job_id, over=job.state.over, submitted_at=job.queued_at)

    async def log(
        self, job_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        del follow
        job = await self.job(job_id)
        yield f"output of {job.name}\n".encode()[offset:]

    async def send_files(self, file_id: str, *, size: int, offset: int, data: bytes) -> int:
        await self._answer("files")
        held = self.sent_.get(file_id, b"")[:offset] + data
        self.sent_[file_id] = held[:size]
        return len(self.sent_[file_id])

    async def files(self, job_id: str, *, offset: int = 0) -> AsyncGenerator[bytes, None]:
        await self.job(job_id)
        yield self.sent_.get(job_id, b"")[offset:]

    async def ready(self) -> str:
        await self._answer("health")
        return self.not_ready

    async def metrics(self) -> str:
        await self._answer("metrics")
        return ""


def _named(rows: Sequence[T], what: str, name: str, key: Callable[[T], str]) -> T:
    found = [row for row in rows if key(row) == name]
    if not found:
        raise ApiNotFound(f"There is no {what} {name}", why="it is not there", fix="Look")
    return found[0]
