"""The life of jobs in memory. No method awaits between its first read and its last write, so each is atomic."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.dispatch.decide.fairness import AGEING
from remuda.model.job import (
    Claim,
    Completion,
    Job,
    JobState,
    Kind,
    LiveClaim,
    Session,
    Standing,
    state_after,
    unnamed_job,
)
from remuda.ports.jobs import (
    ANYTHING,
    AUDIT_KEPT,
    Attribution,
    Claimed,
    Completed,
    Enqueued,
    Fence,
    Known,
    NoJob,
    NothingToDo,
    Over,
    PodStopped,
    Released,
    Running,
    Sighted,
    Stale,
)
from remuda.ports.registrations import registration_of
from remuda.sim.jobs.execution import Attributed, attribute, attribute_session, execution_of
from remuda.sim.jobs.tables import drop_oldest
from remuda.sim.jobs.turns import may_go, pick, turns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from remuda.model.job import JobSpec, Os, Size
    from remuda.ports.jobs import Execution, JobEnd, PodEnd, Release, WarmRunner, Without
    from remuda.ports.registrations import Registration
    from remuda.sim.jobs.tables import Tables

_TICK = timedelta(microseconds=1)


class MemoryJobs:
    """Implements ``remuda.ports.jobs.JobStore``."""

    def __init__(self, tables: Tables, *, ageing: timedelta = AGEING) -> None:
        self._tables = tables
        self._ageing = ageing

    async def ensure_limits(self, tenant: str, os: Os, limit: Size, *, by: str) -> bool:
        if (tenant, os) in self._tables.limits:
            return False
        self._limit(tenant, os, limit, by)
        return True

    async def set_limits(self, tenant: str, os: Os, limit: Size, *, by: str) -> None:
        self._limit(tenant, os, limit, by)

    def _limit(self, tenant: str, os: Os, limit: Size, by: str) -> None:
        limits = self._tables.limits
        before = limits.get((tenant, os), Standing(tenant=tenant, os=os, limit=limit))
        limits[tenant, os] = replace(before, limit=limit)
        why = f"{limit.vcpus} vCPU and {limit.memory_mib} MiB on {os.value}"
        self._tables.audit(by, "limited", why, tenant=tenant)
        self._tables.wake_tenant(tenant, os)

    async def enqueue(self, spec: JobSpec, *, by: str) -> Enqueued | Known | Over:
        tables = self._tables
        if spec.id in tables.completions:
            return Over(tables.completions[spec.id])
        if spec.id in tables.jobs:
            return Known(tables.jobs[spec.id])
        live = tables.claim_on_job(spec.id)
        job = Job(spec=spec)
        if live is None:
            tables.write(job)
        else:
            assert live.executed_at is not None
            job = tables.run(job, live.claim, live.runner_name, live.executed_at)
        why = "the forge announced it" if live is None else "a runner of ours executes it"
        tables.audit(by, "enqueued", why, **_about(job))
        return Enqueued(job)

    async def claim(
        self, runner: WarmRunner, *, without: Without = ANYTHING
    ) -> Claimed | NothingToDo:
        tables, now = self._tables, self._tables.clock.now()
        if runner.pod in tables.claims:
            return NothingToDo(NoJob.POD_IN_USE, tables.claims[runner.pod])
        if runner.pod_uid in tables.sessions:
            return NothingToDo(NoJob.POD_SPENT)
        jobs = may_go(tables, runner.pool, now, without)
        in_turn = turns(tables, jobs, now, self._ageing)
        for turn in in_turn:
            job = pick(tables, turn.standing, jobs, now, self._ageing)
            if job is not None:
                return self._take(job, turn.standing, runner)
        if in_turn:
            return NothingToDo(NoJob.CAPPED)
        if not tables.waiting(runner.pool):
            return NothingToDo(NoJob.EMPTY)
        return NothingToDo(NoJob.NO_LIMITS if jobs else NoJob.HELD)

    def _take(self, job: Job, standing: Standing, runner: WarmRunner) -> Claimed:
        tables, spec, now = self._tables, job.spec, self._tables.clock.now()
        token = now
        if standing.last_claimed_at is not None:
            token = max(now, standing.last_claimed_at + _TICK)
        claim = Claim(spec.id, runner.pod, runner.pod_uid, token)
        tables.claims[runner.pod] = LiveClaim(
            claim=claim,
            tenant=spec.tenant,
            repository=spec.repository,
            pool=spec.pool,
            os=spec.os,
            size=spec.size,
        )
        tables.take_room((spec.tenant, spec.os), spec.size, token)
        taken = tables.write(
            Job(spec=spec, state=JobState.CLAIMED, claim=claim, attempts=job.attempts + 1)
        )
        tables.audit("dispatch", "claimed", "its turn came and the Pod was warm", **_about(taken))
        if runner.runner_name and spec.kind is not Kind.LOCAL:
            noted = registration_of(taken, runner.pod, runner.runner_name)
            tables.registrations.setdefault(noted.runner_name, replace(noted, noted_at=now))
        return Claimed(taken, claim)

    async def mark_running(
        self,
        claim: Claim,
        runner_name: str,
        *,
        registered: Registration | None = None,
        job: Job | None = None,
    ) -> Running | Stale:
        del job  # it is read here at no cost
        self._number(runner_name, registered)
        live = self._fenced(claim)
        if isinstance(live, Stale):
            return live
        if live.delivered_at is None:
            return self._deliver(live, runner_name)
        session = self._tables.sessions.get(claim.pod_uid)
        if live.runner_name != runner_name or session is None:
            return Stale(Fence.DELIVERED)
        return Running(self._tables.jobs[live.claim.job_id], session)

    async def deliver_again(
        self,
        claim: Claim,
        runner_name: str,
        *,
        within: timedelta,
        registered: Registration | None = None,
    ) -> Running | Stale:
        self._number(runner_name, registered)
        live = self._fenced(claim)
        if isinstance(live, Stale):
            return live
        if live.delivered_at is None:
            return self._deliver(live, runner_name)
        if live.executed_at is not None:
            return Stale(Fence.EXECUTING)
        if self._tables.clock.now() - live.delivered_at > within:
            return Stale(Fence.TOO_LATE)
        return self._rename(live, runner_name)

    def _number(self, runner_name: str, given: Registration | None) -> None:
        """Add what the forge calls a runner to what was noted of it."""
        noted = self._tables.registrations.get(runner_name)
        if noted is not None and given is not None:
            numbered = replace(noted, scope=given.scope, number=given.number)
            self._tables.registrations[runner_name] = numbered

    def _live(self, claim: Claim) -> LiveClaim | None:
        """Return the claim that a handle is of. Tokens grow for one tenant and OS: of two tenants they may be alike."""
        live, job = self._tables.claims.get(claim.pod), self._tables.jobs.get(claim.job_id)
        if live is None or not _same(live.claim, claim):
            return None
        ours = job is None or (job.spec.tenant, job.spec.os) == (live.tenant, live.os)
        return live if ours else None

    def _fenced(self, claim: Claim) -> LiveClaim | Stale:
        live = self._live(claim)
        if live is None:
            return Stale(Fence.GONE)
        job = self._tables.jobs.get(live.claim.job_id)
        return Stale(Fence.OVER) if job is None or job.state.over else live

    def _deliver(self, live: LiveClaim, runner_name: str) -> Running:
        tables, held, now = self._tables, live.claim, self._tables.clock.now()
        tables.claims[held.pod] = replace(live, runner_name=runner_name, delivered_at=now)
        job = tables.run(tables.jobs[held.job_id], held, runner_name, now)
        session = Session(
            pod=held.pod,
            pod_uid=held.pod_uid,
            job_id=held.job_id,
            tenant=live.tenant,
            repository=live.repository,
            pool=live.pool,
            os=live.os,
            size=live.size,
            runner_name=runner_name,
            started_at=held.claimed_at,
        )
        assert held.pod_uid not in tables.sessions, "a Pod gets one job in its life"
        tables.sessions[held.pod_uid] = session
        tables.audit("dispatch", "running", f"handed to {runner_name}", **_about(job))
        return Running(job, session)

    def _rename(self, live: LiveClaim, runner_name: str) -> Running:
        tables, held = self._tables, live.claim
        assert live.delivered_at is not None
        tables.claims[held.pod] = replace(live, runner_name=runner_name)
        job = tables.run(tables.jobs[held.job_id], held, runner_name, live.delivered_at)
        session = replace(tables.sessions[held.pod_uid], runner_name=runner_name)
        tables.sessions[held.pod_uid] = session
        why = f"the first answer was lost: {runner_name} instead of {live.runner_name}"
        tables.audit("dispatch", "delivered_again", why, **_about(job))
        return Running(job, session, live.runner_name)

    async def release(self, claim: Claim, release: Release) -> Released | Stale:
        tables = self._tables
        live = self._live(claim)
        if live is None:
            return self._release_unclaimed(claim, release)
        if release.undelivered and live.executed_at is not None:
            return Stale(Fence.EXECUTING)
        if release.runner_name not in {None, live.runner_name}:
            return Stale(Fence.DELIVERED)
        if not release.undelivered and live.claim.job_id != claim.job_id:
            return Stale(Fence.MOVED)
        if release.missing_since is not None and release.missing_since != live.missing_since:
            return Stale(Fence.SEEN)
        tables.end_claim(live.claim)
        if release.undelivered:
            self._void_session(claim)
        job = tables.jobs.get(live.claim.job_id)
        back = tables.requeue(job, claim, release.hold_until)
        tables.audit(release.by, "released", release.why, **_of_claim(live))
        return Released(live.claim.job_id, back)

    def _release_unclaimed(self, claim: Claim, release: Release) -> Released | Stale:
        job = self._tables.jobs.get(claim.job_id)
        if job is None or job.claim is None or not _same(job.claim, claim):
            return Stale(Fence.GONE)
        if release.runner_name not in {None, job.runner_name}:
            return Stale(Fence.DELIVERED)
        if not self._tables.requeue(job, claim, release.hold_until):
            return Stale(Fence.OVER)
        if release.undelivered:
            self._void_session(claim)
        self._tables.audit(release.by, "released", release.why, **_about(job))
        return Released(claim.job_id, requeued=True)

    def _void_session(self, claim: Claim) -> None:
        session = self._tables.sessions.get(claim.pod_uid)
        if session and not session.executed_job_id and session.ended_at is None:
            del self._tables.sessions[claim.pod_uid]

    async def disown(self, claim: Claim, *, by: str, why: str) -> Released | Stale:
        tables, live = self._tables, self._live(claim)
        if live is None or live.delivered_at is None:
            return Stale(Fence.GONE)
        if live.claim.job_id != claim.job_id:
            return Stale(Fence.MOVED)
        if live.executed_at is not None:
            return Stale(Fence.EXECUTING)
        unnamed = replace(live.claim, job_id=unnamed_job(claim.pod_uid))
        tables.claims[claim.pod] = replace(live, claim=unnamed)
        back = tables.requeue(tables.jobs.get(claim.job_id), claim)
        tables.audit(by, "disowned", why, **_of_claim(live))
        return Released(claim.job_id, back)

    async def attribute(self, execution: Execution) -> Attribution:
        if execution.job_id in self._tables.completions:
            return Attribution.OVER
        done = attribute(self._tables, execution)
        if done.result is not Attribution.CONTRADICTED:
            attribute_session(self._tables, execution)
        live = done.claim
        if live is not None and live.executed_at is None:
            same = done.result is Attribution.MATCHED
            was_for = f"its runner was for {live.claim.job_id}"
            why = "the forge gave it to its runner" if same else was_for
            about = {**_of_claim(live), "job_id": execution.job_id}
            self._tables.audit(execution.by, "executing", why, **about)
        return done.result

    async def complete(self, end: JobEnd) -> Completed:
        tables = self._tables
        job = tables.jobs.get(end.job_id)
        if job is not None and job.spec.tenant != end.tenant:
            return Completed(news=False)
        done = Attributed(Attribution.UNKNOWN_RUNNER)
        if end.runner_name:
            done = attribute(tables, execution_of(end))
        job = tables.jobs.get(end.job_id)
        news = end.job_id not in tables.completions
        if news:
            tables.completions[end.job_id] = Completion(end.job_id, end.conclusion, end.ended_at)
        if end.runner_name and done.result is not Attribution.CONTRADICTED:
            attribute_session(tables, execution_of(end), end)
        if job is not None and not job.state.over:
            tables.write(_ended(job, end))
        freed = self._free(end, done)
        if news or freed:
            about = _about(job) if job else {"job_id": end.job_id, "tenant": end.tenant}
            if freed:
                about["pod"] = freed[0].pod
            why = end.why or f"it ended: {end.conclusion}"
            tables.audit(end.by, "completed", why, **about)
        requeued = (done.requeued,) if done.requeued else ()
        return Completed(news=news, freed=freed, requeued=requeued)

    def _free(self, end: JobEnd, done: Attributed) -> tuple[Claim, ...]:
        ended: LiveClaim | None = None
        if done.result in {Attribution.MATCHED, Attribution.MOVED}:
            ended = done.claim
        elif end.ends_claim:
            on_job = self._tables.claim_on_job(end.job_id)
            ended = on_job if on_job and on_job.tenant == end.tenant else None
        if ended is None:
            return ()
        self._tables.end_claim(ended.claim)
        return (replace(ended.claim, job_id=end.job_id),)

    async def stop_pod(self, end: PodEnd) -> PodStopped:
        if not end.pod:
            return PodStopped()
        tables, live, requeued = self._tables, self._tables.claims.get(end.pod), ""
        if live is not None and end.pod_uid not in {"", live.claim.pod_uid}:
            live = None
        if live is not None and end.missing_since not in {None, live.missing_since}:
            return PodStopped()
        if live is not None:
            tables.end_claim(live.claim)
            job = tables.jobs.get(live.claim.job_id)
            if live.delivered_at is None and tables.requeue(job, live.claim):
                requeued = live.claim.job_id
        changed, session = self._end_session(end)
        if live is not None:
            about = _of_claim(live)
            tables.audit(end.by, "stopped", end.reason or "the Pod stopped", **about)
        elif changed and session is not None:
            about = _of_session(session)
            tables.audit(end.by, "stopped", end.reason or "the Pod stopped", **about)
        return PodStopped(
            session=session,
            released=live.claim if live else None,
            requeued=requeued,
            in_doubt=self._running_on(end),
        )

    def _end_session(self, end: PodEnd) -> tuple[bool, Session | None]:
        of_pod = [
            s
            for s in self._tables.sessions.values()
            if s.pod == end.pod and end.pod_uid in {"", s.pod_uid}
        ]
        if not of_pod:
            return False, None
        still_open = [session for session in of_pod if session.ended_at is None]
        session = max(still_open or of_pod, key=lambda session: session.started_at)
        ended_at = min(session.ended_at or end.ended_at, end.ended_at)
        after = replace(
            session,
            ended_at=max(session.started_at, ended_at),
            exit_code=end.exit_code if session.exit_code is None else session.exit_code,
            end_reason=session.end_reason or end.reason,
        )
        self._tables.sessions[session.pod_uid] = after
        return after != session, after

    def _running_on(self, end: PodEnd) -> tuple[Job, ...]:
        found = [
            job
            for job in self._tables.jobs.values()
            if job.state is JobState.RUNNING
            and job.claim is not None
            and job.claim.pod == end.pod
            and end.pod_uid in {"", job.claim.pod_uid}
        ]
        return tuple(sorted(found, key=lambda job: (job.spec.queued_at, job.spec.id)))

    async def forget(self, *, over_before: datetime, limit: int) -> int:
        tables = self._tables
        audit_before = min(over_before, tables.clock.now() - AUDIT_KEPT)
        held = {live.claim.job_id for live in tables.claims.values()}
        jobs = {
            job_id: job.ended_at
            for job_id, job in tables.jobs.items()
            if job.state.over and job_id not in held
        }
        gone = drop_oldest(tables.jobs, jobs, over_before, limit)
        ends = {
            job_id: completion.ended_at
            for job_id, completion in tables.completions.items()
            if job_id not in tables.jobs and job_id not in held
        }
        gone += drop_oldest(tables.completions, ends, over_before, limit)
        pods = {uid: session.ended_at for uid, session in tables.sessions.items()}
        gone += drop_oldest(tables.sessions, pods, over_before, limit)
        old = [entry for entry in tables.decisions[:limit] if entry.at < audit_before]
        tables.decisions[:limit] = [e for e in tables.decisions[:limit] if e.at >= audit_before]
        return gone + len(old)

    async def sight_pods(
        self, *, present: Iterable[Claim], absent: Iterable[Claim], by: str
    ) -> Sighted:
        back = self._sight(present, "seen_again", by)
        return Sighted(missing=self._sight(absent, "missing", by), back=back)

    def _sight(self, claims: Iterable[Claim], what: str, by: str) -> int:
        tables, changed = self._tables, 0
        missing = what == "missing"
        for claim in sorted(claims, key=lambda claim: claim.pod):
            live = tables.claims.get(claim.pod)
            if live is None or live.claim.claimed_at != claim.claimed_at:
                continue
            if missing == (live.missing_since is not None):
                continue
            since = tables.clock.now() if missing else None
            tables.claims[claim.pod] = replace(live, missing_since=since)
            tables.audit(by, what, "a look at the Pods", **_of_claim(live))
            changed += 1
        return changed


def _same(one: Claim, other: Claim) -> bool:
    """Whether two handles are of the same hold; the job of a hold may change."""
    return (one.pod, one.pod_uid, one.claimed_at) == (other.pod, other.pod_uid, other.claimed_at)


def _ended(job: Job, end: JobEnd) -> Job:
    return replace(
        job,
        state=state_after(end.conclusion),
        conclusion=end.conclusion,
        ended_at=end.ended_at,
        runner_name=end.runner_name or job.runner_name,
        hold_until=None,
    )


def _about(job: Job) -> dict[str, str]:
    pod = job.claim.pod if job.claim else ""
    return {"job_id": job.spec.id, "pod": pod, "tenant": job.spec.tenant, "pool": job.spec.pool}


def _of_claim(live: LiveClaim) -> dict[str, str]:
    held = live.claim
    return {"job_id": held.job_id, "pod": held.pod, "tenant": live.tenant, "pool": live.pool}


def _of_session(session: Session) -> dict[str, str]:
    return {
        "job_id": session.executed_job_id or session.job_id,
        "pod": session.pod,
        "tenant": session.tenant,
        "pool": session.pool,
    }
