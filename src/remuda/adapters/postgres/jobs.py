"""
The store of jobs on PostgreSQL. ``remuda.sim.jobs`` is its twin in memory; one suite holds both to the same answers.

Each call is one transaction; SQL is in ``queries/jobs.sql``. The claim alone decides in SQL (``migrations/0002``): its
fairness and limits must be atomic, and it is the hot path.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from remuda.adapters.postgres.claim_lines import ClaimLines
from remuda.adapters.postgres.job_rows import (
    completion_of,
    job_of,
    live_claim_of,
    session_of,
    spec_values,
)
from remuda.adapters.postgres.job_steps import Attributed, JobSteps
from remuda.adapters.postgres.queries import query
from remuda.dispatch.decide.fairness import AGEING
from remuda.model.job import JobState, state_after
from remuda.ports.database import DatabaseConflict
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

    from remuda.adapters.postgres.job_steps import Held
    from remuda.adapters.postgres.pool import Database, Pooled
    from remuda.model.job import Claim, Job, JobSpec, LiveClaim, Os, Session, Size
    from remuda.ports.clock import Clock
    from remuda.ports.jobs import JobEnd, PodEnd, WarmRunner, Without

CLAIM_WAIT = timedelta(milliseconds=50)
"""How long a claim waits if all who have work are being claimed for at that moment."""
_TRIES = 5

_Answer = TypeVar("_Answer")


class PostgresJobs:
    """Implements ``remuda.ports.jobs.JobStore``."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        ageing: timedelta = AGEING,
        wait: timedelta = CLAIM_WAIT,
        combined: bool = True,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ageing = ageing
        self._wait_ms = int(wait / timedelta(milliseconds=1))
        self._lines = ClaimLines(self._claim_together, self._give_back) if combined else None

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
        async with self._transaction() as (c, steps):
            await steps.lock_job(spec.id)
            over = await c.fetchrow(query("completions_of"), [spec.id])
            if over is not None:
                return Over(completion_of(over))
            known = await c.fetchrow(query("job_by_id"), spec.id)
            if known is not None:
                return Known(job_of(known))
            # The forge may have given it to a runner of ours before it told us of it.
            held = await c.fetchrow(query("lock_claim_on_job"), spec.id)
            job = job_of(await _inserted(c, spec, live_claim_of(held) if held else None))
            why = "the forge announced it" if held is None else "a runner of ours executes it"
            await steps.audit(by, "enqueued", why, **_about(job))
            return Enqueued(job)

    async def claim(
        self, runner: WarmRunner, *, without: Without = ANYTHING
    ) -> Claimed | NothingToDo:
        if without != ANYTHING or self._lines is None:
            (answer,) = await self._claim_together((runner,), without)
            return answer
        return await self._lines.ask(runner)

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
                *(self._clock.now(), self._ageing, self._wait_ms),
                *(sorted(without.tenants), sorted(without.repositories), sorted(without.jobs)),
            )
            assert len(rows) == len(runners)
            return [
                await _claim_answer(c, runner, row)
                for runner, row in zip(runners, rows, strict=True)
            ]

    async def _give_back(self, claim: Claim) -> None:
        gone = Release(
            by="dispatch", why="who asked for it was gone", undelivered=True, runner_name=""
        )
        await self.release(claim, gone)

    async def mark_running(self, claim: Claim, runner_name: str) -> Running | Stale:
        async def mark(c: Pooled, steps: JobSteps) -> Running | Stale:
            held = await steps.hold(claim.pod)
            fence = _fence_of_delivery(held, claim)
            if fence is not None:
                return Stale(fence)
            assert held.claim is not None
            if held.claim.delivered_at is not None:
                return await _as_before(c, held, runner_name)
            return await self._deliver(c, steps, held, runner_name)

        return await self._repeated(mark)

    async def deliver_again(
        self, claim: Claim, runner_name: str, *, within: timedelta
    ) -> Running | Stale:
        async def again(c: Pooled, steps: JobSteps) -> Running | Stale:
            held = await steps.hold(claim.pod)
            fence = _fence_of_delivery(held, claim)
            if fence is not None:
                return Stale(fence)
            assert held.claim is not None
            if held.claim.delivered_at is None:
                return await self._deliver(c, steps, held, runner_name)
            if held.claim.executed_at is not None:
                return Stale(Fence.EXECUTING)
            if self._clock.now() - held.claim.delivered_at > within:
                return Stale(Fence.TOO_LATE)
            return await self._rename(c, steps, held, runner_name)

        return await self._repeated(again)

    async def _deliver(
        self, c: Pooled, steps: JobSteps, held: Held, runner_name: str
    ) -> Running | Stale:
        live, now = held.claim, self._clock.now()
        assert live is not None
        job = held.jobs[live.claim.job_id]
        await c.execute(
            query("deliver_claim"), live.claim.pod, live.claim.claimed_at, runner_name, now
        )
        job = await steps.run(job, live.claim, runner_name, now)
        session = session_of(await _session_inserted(c, live, runner_name))
        await steps.audit("dispatch", "running", f"handed to {runner_name}", **_about(job))
        return Running(job, session)

    async def _rename(self, c: Pooled, steps: JobSteps, held: Held, runner_name: str) -> Running:
        live = held.claim
        assert live is not None
        assert live.delivered_at is not None
        job = held.jobs[live.claim.job_id]
        await c.execute(
            query("deliver_claim"),
            *(live.claim.pod, live.claim.claimed_at, runner_name, live.delivered_at),
        )
        job = await steps.run(job, live.claim, runner_name, live.delivered_at)
        row = await c.fetchrow(query("rename_session"), live.claim.pod_uid, runner_name)
        assert row is not None, "a delivered claim has a session"
        why = f"the first answer was lost: {runner_name} instead of {live.runner_name}"
        await steps.audit("dispatch", "delivered_again", why, **_about(job))
        return Running(job, session_of(row), live.runner_name)

    async def release(self, claim: Claim, release: Release) -> Released | Stale:
        async def let_go(c: Pooled, steps: JobSteps) -> Released | Stale:
            held = await steps.hold(claim.pod, claim.job_id)
            live = held.claim
            if live is None or not _same(live.claim, claim):
                return await _release_unclaimed(c, steps, held, claim, release)
            fence = _fence_of_release(live, claim, release)
            if fence is not None:
                return Stale(fence)
            await steps.end_claim(claim)
            if release.undelivered:
                await c.execute(query("void_session"), claim.pod_uid)
            job = held.job(live.claim.job_id)
            back = job is not None and await steps.requeue(job, claim, release.hold_until)
            await steps.audit(release.by, "released", release.why, **_of_claim(live))
            return Released(live.claim.job_id, back)

        return await self._repeated(let_go)

    async def attribute(self, execution: Execution) -> Attribution:
        async def bind(c: Pooled, steps: JobSteps) -> Attribution:
            await steps.lock_job(execution.job_id)
            if await c.fetchrow(query("completions_of"), [execution.job_id]) is not None:
                return Attribution.OVER
            done = await steps.attribute(execution)
            if done.result is not Attribution.CONTRADICTED:
                await _attribute_session(c, execution)
            await _audit_attribution(steps, execution, done)
            return done.result

        return await self._repeated(bind)

    async def complete(self, end: JobEnd) -> Completed:
        async def finish(c: Pooled, steps: JobSteps) -> Completed:
            await steps.lock_job(end.job_id)
            done = Attributed(Attribution.UNKNOWN_RUNNER)
            if end.runner_name:
                execution = _execution_of(end)
                done = await steps.attribute(execution)
            job = (await steps.lock_jobs({end.job_id})).get(end.job_id)
            if job is not None and job.spec.tenant != end.tenant:
                return Completed(news=False)
            return await self._finish(c, steps, end, job, done)

        return await self._repeated(finish)

    async def _finish(
        self, c: Pooled, steps: JobSteps, end: JobEnd, job: Job | None, done: Attributed
    ) -> Completed:
        values = (end.job_id, end.conclusion, end.ended_at)
        news = await c.fetchval(query("insert_completion"), *values) is not None
        if end.runner_name and done.result is not Attribution.CONTRADICTED:
            await _attribute_session(c, _execution_of(end), end)
        if job is not None:
            state = state_after(end.conclusion).value
            runner = end.runner_name or None
            await c.execute(
                query("end_job"), end.job_id, state, end.conclusion, end.ended_at, runner
            )
        freed = await self._free(c, steps, end, done)
        if news or freed:
            why = end.why or f"it ended: {end.conclusion}"
            about = _about(job) if job else {"job_id": end.job_id, "tenant": end.tenant}
            await steps.audit(end.by, "completed", why, **about)
        return Completed(news=news, freed=freed, requeued=(done.requeued,) if done.requeued else ())

    async def _free(
        self, c: Pooled, steps: JobSteps, end: JobEnd, done: Attributed
    ) -> tuple[Claim, ...]:
        ended = []
        if done.result in {Attribution.MATCHED, Attribution.MOVED}:
            assert done.claim is not None
            ended.append(replace(done.claim.claim, job_id=end.job_id))
        elif end.ends_claim:
            row = await c.fetchrow(query("lock_claim_on_job"), end.job_id)
            if row is not None and row["tenant"] == end.tenant:
                ended.append(live_claim_of(row).claim)
        for claim in ended:
            await steps.end_claim(claim)
        return tuple(ended)

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
        async with self._transaction() as (c, steps):
            back = await c.fetch(query("pods_back"), *_columns(present))
            gone = await c.fetch(query("pods_missing"), *_columns(absent), self._clock.now())
            for what, rows in (("seen_again", back), ("missing", gone)):
                for live in sorted((live_claim_of(r) for r in rows), key=lambda c: c.claim.pod):
                    await steps.audit(by, what, "a look at the Pods", **_of_claim(live))
            return Sighted(missing=len(gone), back=len(back))

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

    async def _repeated(self, work: Callable[[Pooled, JobSteps], Awaitable[_Answer]]) -> _Answer:
        """Try again when two transactions stood in each other's way: one of them always gets through."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(DatabaseConflict):
                async with self._transaction() as (c, steps):
                    return await work(c, steps)
        async with self._transaction() as (c, steps):
            return await work(c, steps)


def _same(one: Claim, other: Claim) -> bool:
    """Whether two handles are of the same hold; the job of a hold may change."""
    return (one.pod, one.pod_uid, one.claimed_at) == (other.pod, other.pod_uid, other.claimed_at)


def _fence_of_delivery(held: Held, claim: Claim) -> Fence | None:
    if held.claim is None or not _same(held.claim.claim, claim):
        return Fence.GONE
    job = held.job(held.claim.claim.job_id)
    return Fence.OVER if job is None or job.state.over else None


def _fence_of_release(live: LiveClaim, claim: Claim, release: Release) -> Fence | None:
    if release.undelivered and live.executed_at is not None:
        return Fence.EXECUTING
    if release.runner_name not in {None, live.runner_name}:
        return Fence.DELIVERED
    if not release.undelivered and live.claim.job_id != claim.job_id:
        return Fence.MOVED
    if release.missing_since is not None and release.missing_since != live.missing_since:
        return Fence.SEEN
    return None


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


async def _release_unclaimed(
    c: Pooled, steps: JobSteps, held: Held, claim: Claim, release: Release
) -> Released | Stale:
    """Put back a job whose claim ended with its Pod while the job counts as running."""
    job = held.job(claim.job_id)
    if job is None or job.claim is None or not _same(job.claim, claim):
        return Stale(Fence.GONE)
    if release.runner_name not in {None, job.runner_name}:
        return Stale(Fence.DELIVERED)
    if not await steps.requeue(job, claim, release.hold_until):
        return Stale(Fence.OVER)
    if release.undelivered:
        await c.execute(query("void_session"), claim.pod_uid)
    await steps.audit(release.by, "released", release.why, **_about(job))
    return Released(job.spec.id, requeued=True)


async def _as_before(c: Pooled, held: Held, runner_name: str) -> Running | Stale:
    """Answer a repeated call: the first one's answer may have been lost on its way."""
    live = held.claim
    assert live is not None
    row = await c.fetchrow(query("session_by_uid"), live.claim.pod_uid)
    if live.runner_name != runner_name or row is None:
        return Stale(Fence.DELIVERED)
    return Running(held.jobs[live.claim.job_id], session_of(row))


async def _end_session(c: Pooled, end: PodEnd) -> tuple[bool, Session | None]:
    before = await c.fetchrow(query("lock_session_of_pod"), end.pod, end.pod_uid)
    if before is None:
        return False, None
    row = await c.fetchrow(
        query("end_session"), before["pod_uid"], end.ended_at, end.exit_code, end.reason or None
    )
    assert row is not None
    return session_of(row) != session_of(before), session_of(row)


async def _attribute_session(c: Pooled, execution: Execution, end: JobEnd | None = None) -> None:
    """Write down what a runner ran, and the forge's own times of it. Half a window is none."""
    window: tuple[datetime | None, datetime | None] = (None, None)
    if end is not None and end.started_at is not None and end.started_at <= end.ended_at:
        window = (end.started_at, end.ended_at)
    await c.execute(
        query("attribute_session"),
        *(execution.tenant, execution.runner_name, execution.job_id, *window),
    )


async def _audit_attribution(steps: JobSteps, execution: Execution, done: Attributed) -> None:
    live = done.claim
    if live is None or live.executed_at is not None:
        return
    same = done.result is Attribution.MATCHED
    why = "the forge gave it to its runner" if same else f"its runner was for {live.claim.job_id}"
    about = {**_of_claim(live), "job_id": execution.job_id}
    await steps.audit(execution.by, "executing", why, **about)


def _execution_of(end: JobEnd) -> Execution:
    return Execution(
        tenant=end.tenant,
        job_id=end.job_id,
        runner_name=end.runner_name,
        started_at=end.started_at or end.ended_at,
        by=end.by,
    )


async def _inserted(c: Pooled, spec: JobSpec, live: LiveClaim | None) -> Record:
    state = JobState.QUEUED if live is None else JobState.RUNNING
    bound: tuple[object, ...] = (None,) * 5
    if live is not None:
        held = live.claim
        bound = (held.pod, held.pod_uid, held.claimed_at, live.runner_name, live.executed_at)
    row = await c.fetchrow(query("insert_job"), *spec_values(spec), state.value, *bound)
    assert row is not None
    return row


async def _session_inserted(c: Pooled, live: LiveClaim, runner_name: str) -> Record:
    held = live.claim
    row = await c.fetchrow(
        query("insert_session"),
        *(held.pod_uid, held.pod, held.job_id, live.tenant, live.repository, live.pool),
        *(live.os.value, live.size.vcpus, live.size.memory_mib, runner_name, held.claimed_at),
    )
    assert row is not None
    return row


def _columns(claims: Iterable[Claim]) -> tuple[list[str], list[datetime]]:
    listed = list(claims)
    return [claim.pod for claim in listed], [claim.claimed_at for claim in listed]


def _said(os: Os, limit: Size) -> str:
    return f"{limit.vcpus} vCPU and {limit.memory_mib} MiB on {os.value}"


def _about(job: Job) -> dict[str, str]:
    pod = job.claim.pod if job.claim else ""
    return {"job_id": job.spec.id, "pod": pod, "tenant": job.spec.tenant, "pool": job.spec.pool}


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
