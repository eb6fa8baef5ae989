"""What an execution changes in the tables in memory: the same moves as ``adapters/postgres/job_steps.py``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remuda.model.job import JobState
from remuda.ports.jobs import Attribution, Execution

if TYPE_CHECKING:
    from remuda.model.job import Job, LiveClaim
    from remuda.ports.jobs import JobEnd
    from remuda.sim.jobs.tables import Tables


@dataclass(frozen=True, slots=True)
class Attributed:
    """What became of an execution."""

    result: Attribution
    claim: LiveClaim | None = None
    """The claim of the runner as it was before."""
    requeued: str = ""


def attribute(tables: Tables, execution: Execution) -> Attributed:
    """Give a runner's claim the job that it executes."""
    ours = tables.claim_of_runner(execution.tenant, execution.runner_name)
    executed = tables.jobs.get(execution.job_id)
    if ours is None or (executed is not None and executed.spec.tenant != execution.tenant):
        return Attributed(Attribution.UNKNOWN_RUNNER)
    if ours.claim.job_id == execution.job_id:
        if ours.executed_at is None:
            tables.claims[ours.claim.pod] = replace(ours, executed_at=execution.started_at)
        return Attributed(Attribution.MATCHED, ours)
    if ours.executed_at is not None:
        return Attributed(Attribution.CONTRADICTED, ours)
    return _move(tables, ours, executed, execution)


def _move(
    tables: Tables, ours: LiveClaim, executed: Job | None, execution: Execution
) -> Attributed:
    first = tables.jobs.get(ours.claim.job_id)
    other = tables.claim_on_job(execution.job_id)
    moved = _rekey(tables, ours, execution.job_id, executed)
    tables.claims[ours.claim.pod] = replace(moved, executed_at=execution.started_at)
    if other is not None:
        other = _rekey(tables, other, ours.claim.job_id, first)
    requeued = ""
    if first is not None and not first.state.over:
        requeued = _find_place_for(tables, first, other, ours, execution)
    if executed is not None and not executed.state.over:
        tables.run(executed, moved.claim, execution.runner_name, execution.started_at)
    return Attributed(Attribution.MOVED, ours, requeued)


def _find_place_for(
    tables: Tables, job: Job, other: LiveClaim | None, lost: LiveClaim, execution: Execution
) -> str:
    """Give a job whose runner runs another that one's Pod if there is one, else its old place."""
    what, pod = "requeued", lost.claim.pod
    if other is not None:
        what, pod = "moved", other.claim.pod
        _give(tables, job, other)
    elif not tables.requeue(job, lost.claim):
        return ""
    spec, why = job.spec, f"its runner executes {execution.job_id}"
    about = {"job_id": spec.id, "pod": pod, "tenant": spec.tenant, "pool": spec.pool}
    tables.audit(execution.by, what, why, **about)
    return spec.id if other is None else ""


def _rekey(tables: Tables, live: LiveClaim, job_id: str, job: Job | None) -> LiveClaim:
    live_job = job if job is not None and not job.state.over else None
    moved = replace(
        live,
        claim=replace(live.claim, job_id=job_id),
        repository=live_job.spec.repository if live_job else live.repository,
        executed_at=None,
    )
    tables.claims[live.claim.pod] = moved
    return moved


def _give(tables: Tables, job: Job, live: LiveClaim) -> None:
    """Bind a job to a Pod that was claimed for another."""
    if live.delivered_at is not None:
        tables.run(job, live.claim, live.runner_name, live.delivered_at)
        return
    tables.write(
        replace(job, state=JobState.CLAIMED, claim=live.claim, runner_name="", started_at=None)
    )


def attribute_session(tables: Tables, execution: Execution, end: JobEnd | None = None) -> None:
    """Write down what a runner ran, and the forge's own times of it. Half a window is none."""
    named = [
        session
        for session in tables.sessions.values()
        if (session.tenant, session.runner_name) == (execution.tenant, execution.runner_name)
    ]
    if not named:
        return
    still_open = [session for session in named if session.ended_at is None]
    session = max(still_open or named, key=lambda session: session.started_at)
    if session.executed_job_id not in {"", execution.job_id}:
        return
    changed = replace(session, executed_job_id=execution.job_id)
    if end is not None and end.started_at is not None and end.started_at <= end.ended_at:
        changed = replace(
            changed,
            job_started_at=session.job_started_at or end.started_at,
            job_ended_at=session.job_ended_at or end.ended_at,
        )
    tables.sessions[session.pod_uid] = changed


def execution_of(end: JobEnd) -> Execution:
    return Execution(
        tenant=end.tenant,
        job_id=end.job_id,
        runner_name=end.runner_name,
        started_at=end.started_at or end.ended_at,
        by=end.by,
    )
