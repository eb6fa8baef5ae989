"""
The store of jobs on PostgreSQL. ``remuda.sim.jobs`` is its twin in memory; one suite holds both to the same answers.

Each call is one transaction. What comes often decides in SQL, in one round trip (``migrations/0005``, ``0007``,
``0008`` and ``0010``), claims and hand-overs that come at once in one for all of them; what is rare decides here, over
the statements in ``queries/jobs.sql``.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import structlog

from remuda.adapters.postgres.job_rows import (
    completion_of,
    job_of,
    live_claim_of,
    session_of,
    spec_values,
)
from remuda.adapters.postgres.job_steps import JobSteps, moved_under_us
from remuda.adapters.postgres.queries import query
from remuda.adapters.postgres.together import TOGETHER_MAX, Together
from remuda.dispatch.decide.fairness import AGEING
from remuda.model.job import Job, JobState, Session, unnamed_job
from remuda.model.needs import KNOWN
from remuda.ports.database import DatabaseConflict, DatabaseError
from remuda.ports.jobs import (
    ANYTHING,
    AUDIT_KEPT,
    Attribution,
    Claimed,
    Completed,
    Enqueued,
    Execution,
    Fence,
    Known,
    NoJob,
    NothingToDo,
    Over,
    PodStopped,
    Release,
    Released,
    Running,
    Sighted,
    Stale,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from datetime import datetime

    from asyncpg import Record

    from remuda.adapters.postgres.pool import Database, Pooled
    from remuda.model.job import Claim, JobSpec, LiveClaim, Os, Size
    from remuda.ports.clock import Clock
    from remuda.ports.jobs import JobEnd, PodEnd, WarmRunner, Without
    from remuda.ports.registrations import Registration

CLAIM_WAIT = timedelta(milliseconds=50)
"""How long a claim waits if all who have work are being claimed for at that moment."""
HAND_OVERS_TOGETHER = 16
"""How many a server claims for, or hands over, in one statement: while the database is at work for these, the server is
at work for those before them. With more, each of the two would wait for the other."""
_TRIES = 5

_Answer = TypeVar("_Answer")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _HandOver:
    """A job config that was minted for a claim."""

    claim: Claim
    runner_name: str
    registered: Registration | None
    job: Job | None = None
    """As it was claimed: who has it need not be told."""
    within: timedelta | None = None
    """For a second time: how long after the first."""


class PostgresJobs:
    """Implements ``remuda.ports.jobs.JobStore``."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        ageing: timedelta = AGEING,
        wait: timedelta = CLAIM_WAIT,
        most: int = TOGETHER_MAX,
        knows: frozenset[str] = KNOWN,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ageing = ageing
        self._wait_ms = int(wait / timedelta(milliseconds=1))
        self._knows = sorted(knows)
        """What jobs may need: those that need more are another replica's."""
        self._claims = Together(self._claim_each, self._give_back, most=most)
        self._hand_overs = Together(self._deliver_together, most=most)

    async def ensure_limits(self, tenant: str, os: Os, limit: Size, *, by: str) -> bool:
        async with self._transaction() as (c, steps):
            values = (tenant, os.value, limit.vcpus, limit.memory_mib)
            if await c.fetchval(query("ensure_limits"), *values) is None:
                return False
            await steps.audit(by, "limited", _said(os, limit), tenant=tenant)
            await c.execute(query("wake_tenant"), tenant, os.value)
            return True

    async def set_limits(self, tenant: str, os: Os, limit: Size, *, by: str) -> None:
        async with self._transaction() as (c, steps):
            await c.execute(query("set_limits"), tenant, os.value, limit.vcpus, limit.memory_mib)
            await steps.audit(by, "limited", _said(os, limit), tenant=tenant)
            await c.execute(query("wake_tenant"), tenant, os.value)

    async def enqueue(self, spec: JobSpec, *, by: str) -> Enqueued | Known | Over:
        row = await self._one(query("enqueue_job"), *spec_values(spec), by, self._clock.now())
        if row["outcome"] == "over":
            return Over(completion_of(row["ended"]))
        job = job_of(row["job"])
        return Enqueued(job) if row["outcome"] == "enqueued" else Known(job)

    async def claim(
        self, runner: WarmRunner, *, without: Without = ANYTHING
    ) -> Claimed | NothingToDo:
        if without != ANYTHING:
            (answer,) = await self._claim_together((runner,), without)
            return answer
        _, answer = await self._claims.ask(runner, line=runner.pool)
        return answer

    async def _claim_each(
        self, runners: Sequence[WarmRunner]
    ) -> list[tuple[WarmRunner, Claimed | NothingToDo]]:
        return list(zip(runners, await self._claim_together(runners), strict=True))

    async def _claim_together(
        self, runners: Sequence[WarmRunner], without: Without = ANYTHING
    ) -> list[Claimed | NothingToDo]:
        """Serve Pods of one pool in the order in which they asked, in one transaction."""
        async with self._database.connection() as c:
            rows = await c.fetch(
                query("claim_jobs"),
                runners[0].pool,
                [runner.pod for runner in runners],
                [runner.pod_uid for runner in runners],
                [runner.runner_name for runner in runners],
                *(self._clock.now(), self._ageing, self._wait_ms),
                *(sorted(without.tenants), sorted(without.repositories), sorted(without.jobs)),
                self._knows,
            )
            assert len(rows) == len(runners)
            return [
                await _claim_answer(c, runner, row)
                for runner, row in zip(runners, rows, strict=True)
            ]

    async def _give_back(self, given: tuple[WarmRunner, Claimed | NothingToDo]) -> None:
        runner, answer = given
        if not isinstance(answer, Claimed):
            return
        gone = Release(
            by="dispatch", why="who asked for it was gone", undelivered=True, runner_name=""
        )
        # If it fails, the sweeps find it: those over claims that nothing was minted for, and over unused registrations.
        with contextlib.suppress(DatabaseError):
            await self.release(answer.claim, gone)
            if runner.runner_name:
                async with self._database.connection() as c:
                    await c.execute(query("settle_registrations"), [runner.runner_name])
            _log.info("claim_given_back", job=answer.claim.job_id, pod=answer.claim.pod)

    async def mark_running(
        self,
        claim: Claim,
        runner_name: str,
        *,
        registered: Registration | None = None,
        job: Job | None = None,
    ) -> Running | Stale:
        return await self._hand_over(_HandOver(claim, runner_name, registered, job))

    async def deliver_again(
        self,
        claim: Claim,
        runner_name: str,
        *,
        within: timedelta,
        registered: Registration | None = None,
    ) -> Running | Stale:
        return await self._hand_over(_HandOver(claim, runner_name, registered, within=within))

    async def _hand_over(self, one: _HandOver) -> Running | Stale:
        for _ in range(_TRIES):
            with contextlib.suppress(DatabaseConflict):
                answer = await self._hand_overs.ask(one)
                if answer is not None:
                    return answer
        raise moved_under_us()

    async def _deliver_together(self, some: Sequence[_HandOver]) -> list[Running | Stale | None]:
        """Hand several over in one transaction. None: a claim changed its job under it, so it must be tried again."""
        now = self._clock.now()
        async with self._database.connection() as c:
            rows = await c.fetch(
                query("deliver_jobs"),
                [one.claim.job_id for one in some],
                [one.claim.pod for one in some],
                [one.claim.pod_uid for one in some],
                [one.claim.claimed_at for one in some],
                [one.runner_name for one in some],
                [one.within for one in some],
                [one.registered.scope if one.registered else None for one in some],
                [one.registered.number if one.registered else None for one in some],
                any(one.job is None for one in some),
                now,
            )
        return [_hand_over_answer(one, row, now) for one, row in zip(some, rows, strict=True)]

    async def release(self, claim: Claim, release: Release) -> Released | Stale:
        row = await self._one(
            query("release_claim"),
            *(claim.job_id, claim.pod, claim.pod_uid, claim.claimed_at, release.by, release.why),
            *(release.undelivered, release.runner_name, release.hold_until, release.missing_since),
            self._clock.now(),
        )
        if row["outcome"] != "released":
            return Stale(Fence(row["outcome"]))
        return Released(row["job_id"], row["requeued"])

    async def disown(self, claim: Claim, *, by: str, why: str) -> Released | Stale:
        async def take(c: Pooled, steps: JobSteps) -> Released | Stale:
            held = await steps.hold(claim.pod, claim.job_id)
            live, job = held.claim, held.job(claim.job_id)
            if live is None or live.delivered_at is None or not _of_handle(live, claim, job):
                return Stale(Fence.GONE)
            if live.claim.job_id != claim.job_id:
                return Stale(Fence.MOVED)
            if live.executed_at is not None:
                return Stale(Fence.EXECUTING)
            unnamed = unnamed_job(claim.pod_uid)
            await c.execute(query("disown_claim"), claim.pod, claim.claimed_at, unnamed)
            back = job is not None and await steps.requeue(job, claim)
            await steps.audit(by, "disowned", why, **_of_claim(live))
            return Released(claim.job_id, back)

        return await self._repeated(take)

    async def attribute(self, execution: Execution) -> Attribution:
        row = await self._one(
            query("execute_job"),
            *(execution.tenant, execution.job_id, execution.runner_name, execution.started_at),
            *(execution.by, self._clock.now()),
        )
        return Attribution(row["outcome"])

    async def complete(self, end: JobEnd) -> Completed:
        row = await self._one(
            query("complete_job"),
            *(end.job_id, end.tenant, end.conclusion, end.started_at, end.ended_at),
            *(end.runner_name, end.ends_claim, end.by, end.why, self._clock.now()),
        )
        freed: tuple[Claim, ...] = ()
        if row["freed"] is not None and row["freed"]["pod"] is not None:
            freed = (replace(live_claim_of(row["freed"]).claim, job_id=end.job_id),)
        requeued = (row["requeued"],) if row["requeued"] else ()
        return Completed(news=row["news"], freed=freed, requeued=requeued)

    async def stop_pod(self, end: PodEnd) -> PodStopped:
        if not end.pod:
            return PodStopped()

        async def stop(c: Pooled, steps: JobSteps) -> PodStopped:
            held = await steps.hold(end.pod)
            live, requeued = held.claim, ""
            if live is not None and end.pod_uid not in {"", live.claim.pod_uid}:
                live = None
            if live is not None and end.missing_since not in {None, live.missing_since}:
                return PodStopped()
            if live is not None:
                await steps.end_claim(live.claim)
                job = held.job(live.claim.job_id)
                if job is not None and live.delivered_at is None:
                    requeued = job.spec.id if await steps.requeue(job, live.claim) else ""
            changed, session = await _end_session(c, end)
            doubt = await c.fetch(query("jobs_on_pod"), end.pod, end.pod_uid)
            if live is not None or changed:
                about = _of_claim(live) if live else _of_session(session)
                await steps.audit(end.by, "stopped", end.reason or "the Pod stopped", **about)
            return PodStopped(
                session=session,
                released=live.claim if live else None,
                requeued=requeued,
                in_doubt=tuple(job_of(row) for row in doubt),
            )

        return await self._repeated(stop)

    async def sight_pods(
        self, *, present: Iterable[Claim], absent: Iterable[Claim], by: str
    ) -> Sighted:
        seen, unseen = _columns(present), _columns(absent)

        async def sight(c: Pooled, steps: JobSteps) -> Sighted:
            # All of them first, by Pod, as hand-overs lock theirs: in two steps each could wait for the other.
            await c.execute(query("lock_claims_of_pods"), [*seen[0], *unseen[0]])
            back = await c.fetch(query("pods_back"), *seen)
            gone = await c.fetch(query("pods_missing"), *unseen, self._clock.now())
            for what, rows in (("seen_again", back), ("missing", gone)):
                for live in sorted((live_claim_of(r) for r in rows), key=lambda c: c.claim.pod):
                    await steps.audit(by, what, "a look at the Pods", **_of_claim(live))
            return Sighted(missing=len(gone), back=len(back))

        return await self._repeated(sight)

    async def forget(self, *, over_before: datetime, limit: int) -> int:
        audit_before = min(over_before, self._clock.now() - AUDIT_KEPT)
        gone = 0
        async with self._transaction() as (c, _):
            for name in (
                query("forget_jobs"),
                query("forget_completions"),
                query("forget_sessions"),
            ):
                gone += len(await c.fetch(name, over_before, limit))
            return gone + len(await c.fetch(query("forget_decisions"), audit_before, limit))

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[tuple[Pooled, JobSteps]]:
        async with self._database.transaction() as c:
            yield c, JobSteps(c, self._clock.now())

    async def _one(self, statement: str, *values: object) -> Record:
        """Ask a function that answers with one row, again if a claim changed its job under it."""
        for _ in range(_TRIES):
            with contextlib.suppress(DatabaseConflict):
                async with self._database.connection() as c:
                    row = await c.fetchrow(statement, *values)
                assert row is not None
                if row["outcome"] != "conflict":
                    return row
        raise moved_under_us()

    async def _repeated(self, work: Callable[[Pooled, JobSteps], Awaitable[_Answer]]) -> _Answer:
        """Try again when two transactions stood in each other's way: one of them always gets through."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(DatabaseConflict):
                async with self._transaction() as (c, steps):
                    return await work(c, steps)
        async with self._transaction() as (c, steps):
            return await work(c, steps)


async def _claim_answer(c: Pooled, runner: WarmRunner, row: Record) -> Claimed | NothingToDo:
    if row["outcome"] == "claimed":
        job = job_of(row)
        assert job.claim is not None
        assert job.claim.pod == runner.pod
        return Claimed(job, job.claim)
    reason = NoJob(row["outcome"])
    if reason is not NoJob.POD_IN_USE:
        return NothingToDo(reason)
    held = await c.fetchrow(query("claim_of_pod"), runner.pod)
    return NothingToDo(reason, live_claim_of(held) if held else None)


def _hand_over_answer(one: _HandOver, row: Record, now: datetime) -> Running | Stale | None:
    if row["outcome"] == "conflict":
        return None
    if row["outcome"] != "running":
        return Stale(Fence(row["outcome"]))
    told = row["job"]
    if told is None or told["id"] is None:
        assert one.job is not None
        return _first_delivery(one.job, one.claim, one.runner_name, now)
    return Running(job_of(told), session_of(row["session"]), row["replaced"])


def _first_delivery(job: Job, claim: Claim, runner_name: str, now: datetime) -> Running:
    """Return what the database wrote, from what it was told."""
    spec = job.spec
    session = Session(
        pod=claim.pod,
        pod_uid=claim.pod_uid,
        job_id=claim.job_id,
        tenant=spec.tenant,
        repository=spec.repository,
        pool=spec.pool,
        os=spec.os,
        size=spec.size,
        runner_name=runner_name,
        started_at=claim.claimed_at,
    )
    running = Job(
        spec=spec,
        state=JobState.RUNNING,
        claim=claim,
        runner_name=runner_name,
        started_at=now,
        attempts=job.attempts,
    )
    return Running(running, session)


async def _end_session(c: Pooled, end: PodEnd) -> tuple[bool, Session | None]:
    before = await c.fetchrow(query("lock_session_of_pod"), end.pod, end.pod_uid)
    if before is None:
        return False, None
    row = await c.fetchrow(
        query("end_session"), before["pod_uid"], end.ended_at, end.exit_code, end.reason or None
    )
    assert row is not None
    return session_of(row) != session_of(before), session_of(row)


def _columns(claims: Iterable[Claim]) -> tuple[list[str], list[datetime]]:
    listed = list(claims)
    return [claim.pod for claim in listed], [claim.claimed_at for claim in listed]


def _said(os: Os, limit: Size) -> str:
    return f"{limit.vcpus} vCPU and {limit.memory_mib} MiB on {os.value}"


def _of_handle(live: LiveClaim, claim: Claim, job: Job | None) -> bool:
    """Say whether a claim is the handle's. Tokens grow for one tenant and OS: of two tenants they may be alike."""
    held = live.claim
    same = (held.pod_uid, held.claimed_at) == (claim.pod_uid, claim.claimed_at)
    return same and (job is None or (job.spec.tenant, job.spec.os) == (live.tenant, live.os))


def _of_claim(live: LiveClaim) -> dict[str, str]:
    held = live.claim
    return {"job_id": held.job_id, "pod": held.pod, "tenant": live.tenant, "pool": live.pool}


def _of_session(session: Session | None) -> dict[str, str]:
    assert session is not None
    return {
        "job_id": session.executed_job_id or session.job_id,
        "pod": session.pod,
        "tenant": session.tenant,
        "pool": session.pool,
    }
