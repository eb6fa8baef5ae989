"""
Why a job is where it is: a sentence, the facts behind it, and the next step. Pure.

It asks the same questions in the same order as the claim and the desk do (``fairness``, ``drain``, ``Size.fits``), so
it cannot contradict what dispatch does. What it is given may be a moment old.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from remuda.dispatch.decide.drain import has_label_conflict
from remuda.dispatch.decide.explain_pool import nobody_warm, warm_runners
from remuda.dispatch.decide.wording import Explanation, amount, listed, some, when
from remuda.model.job import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from remuda.kube.core import Pod
    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.job import AuditEntry, Job, LiveClaim, Session, Standing
    from remuda.ports.job_views import Waiting

RELEASED: Final = "released"
"""The audit's word for a claim that ended without its job."""

_BY_ITSELF: Final = frozenset({"", "Completed", "Error"})
"""What a Pod says of a job that ended by itself: no more than its exit code does."""


class JobWhy(StrEnum):
    """Where a job is, and what it waits for."""

    OVER = "over"
    RUNNING = "running"
    HANDED_OVER = "handed_over"
    CLAIMED = "claimed"
    CHANGING = "changing"
    POOL_GONE = "pool_gone"
    POOL_DELETED = "pool_deleted"
    LABELS_CONFLICT = "labels_conflict"
    HELD = "held"
    NO_LIMITS = "no_limits"
    TOO_LARGE = "larger_than_limit"
    AT_LIMIT = "tenant_at_limit"
    OTHERS_FIRST = "others_first"
    NEXT = "next"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """All that is known about a job and its pool."""

    job: Job
    waiting: Waiting | None = None
    """What the claim would look at; None if the job does not wait."""
    pool: RunnerPool | None = None
    pods: Sequence[Pod] = ()
    """Those of its pool."""
    claim: LiveClaim | None = None
    """On the Pod that has the job."""
    session: Session | None = None
    """Of the Pod that had the job, if it is known what that did with its life."""
    history: Sequence[AuditEntry] = ()
    """The audit of the job, oldest first."""


def explain_job(facts: JobFacts, now: datetime) -> Explanation:
    """Say where a job is and what it waits for."""
    job = facts.job
    if job.state.over:
        return _over(job, facts.session)
    if job.state is JobState.RUNNING:
        return _running(job, facts.claim)
    if job.state is JobState.CLAIMED:
        return _claimed(job)
    if facts.waiting is None:
        sentence = "It was claimed or ended at this very moment."
        return Explanation(JobWhy.CHANGING, sentence, (), "Ask again.")
    return _waits(facts, facts.waiting, now)


def _waits(facts: JobFacts, waiting: Waiting, now: datetime) -> Explanation:
    """Go down the reasons: what time alone does not cure first, then the claim's own order."""
    place = _place(waiting)
    explanation = (
        _pool_serves_nobody(facts)
        or _held(waiting.job, facts.history, now)
        or _limits(waiting)
        or nobody_warm(facts.pool, facts.pods, now)
        or _turn(facts, waiting)
    )
    since = f"It has waited since {when(waiting.job.spec.queued_at)}"
    tries = waiting.job.attempts
    claimed = (f"It was claimed {some(tries, 'time')} before and came back",) if tries else ()
    return explanation.with_evidence(since, *place, *claimed)


def _pool_serves_nobody(facts: JobFacts) -> Explanation | None:
    name, pool = facts.job.spec.pool, facts.pool
    if pool is None:
        sentence = f"Its pool {name} is gone, so no runner asks for it."
        step = f"Create RunnerPool {name} again, or cancel the job at its forge."
        return Explanation(JobWhy.POOL_GONE, sentence, (), step)
    if pool.metadata.deletion_timestamp is not None and not warm_runners(pool, facts.pods):
        sentence = f"Its pool {name} is being deleted and makes no runners any more."
        step = f"Create RunnerPool {name} again once it is gone, or cancel the job at its forge."
        return Explanation(JobWhy.POOL_DELETED, sentence, (), step)
    if has_label_conflict(pool):
        said = next(c.message for c in pool.status.conditions if c.type == "LabelsConflict")
        sentence = (
            f"An older pool has the same labels as its pool {name}, which therefore gets no jobs."
        )
        step = f"Change spec.labels of pool {name} or of the other one, or delete one of them."
        return Explanation(JobWhy.LABELS_CONFLICT, sentence, (said,) if said else (), step)
    return None


def _held(job: Job, history: Sequence[AuditEntry], now: datetime) -> Explanation | None:
    until = job.hold_until
    if until is None or until <= now:
        return None
    last = next((entry for entry in reversed(history) if entry.what == RELEASED), None)
    because = f": {last.why.rstrip('.')}" if last is not None and last.why else ""
    sentence = f"It is held back until {when(until)}, because handing it over failed{because}."
    facts = () if last is None else (f"{last.who} gave it back at {when(last.at)}: {last.why}",)
    step = (
        "It is tried again then by itself. If it fails each time, mend what is named at the forge."
    )
    return Explanation(JobWhy.HELD, sentence, facts, step)


def _limits(waiting: Waiting) -> Explanation | None:
    spec, standing = waiting.job.spec, waiting.standing
    if standing is None:
        sentence = f"Tenant {spec.tenant} has no limit for {spec.os}, so it may take nothing."
        step = "Set one: POST /api/v1/limits with a token of the role operate."
        return Explanation(JobWhy.NO_LIMITS, sentence, (), step)
    needs = f"It needs {amount(spec.size)}"
    limit = f"The limit of {spec.tenant} for {spec.os} is {amount(standing.limit)}"
    if not spec.size.fits(standing.limit):
        sentence = (
            f"It is larger than the whole limit of its tenant {spec.tenant}: it can never start so."
        )
        step = (
            "Raise the limit (POST /api/v1/limits), or ask for a smaller pool in the job's runs-on."
        )
        return Explanation(JobWhy.TOO_LARGE, sentence, (needs, limit), step)
    if not spec.size.fits(standing.room):
        return _at_limit(waiting, standing, (needs, limit))
    return None


def _at_limit(waiting: Waiting, standing: Standing, facts: tuple[str, ...]) -> Explanation:
    tenant, os = standing.tenant, standing.os
    sentence = f"Tenant {tenant} is at its limit for {os}: {amount(standing.used)} of {amount(standing.limit)} in use."
    holders = [f"{c.claim.job_id} on {c.claim.pod} ({amount(c.size)})" for c in waiting.claims]
    held = (f"In use by {listed(holders)}",) if holders else ()
    step = "It starts when one of these ends. To let more run at once, raise the limit (POST /api/v1/limits)."
    return Explanation(JobWhy.AT_LIMIT, sentence, (*facts, *held), step)


def _turn(facts: JobFacts, waiting: Waiting) -> Explanation:
    warm = len(warm_runners(facts.pool, facts.pods))
    have = f"Pool {waiting.job.spec.pool} has {some(warm, 'warm runner')}"
    before = _tenants_before(waiting)
    if before or waiting.ahead:
        older = f"{some(waiting.ahead, 'older job')} of its own tenant"
        said = []
        if before:
            said.append(f"Others go first: {listed([f'tenant {t}' for t in before])}.")
        if waiting.ahead:
            said.append(
                f"It takes turns with {older}: the repository that was served least goes first."
            )
        sentence = " ".join(said)
        step = "Wait: runners take the jobs before it. If that lasts, the pool is too small for its work."
        return Explanation(JobWhy.OTHERS_FIRST, sentence, (have,), step)
    sentence = "It is next: a warm runner takes it in a moment."
    step = "Ask again in a few seconds. If nothing changes, look at a warm runner: GET /api/v1/runners/{pod}/explain."
    return Explanation(JobWhy.NEXT, sentence, (have,), step)


def _tenants_before(waiting: Waiting) -> list[str]:
    """Return who has an earlier turn and room to use it. Jobs of one pool are of one size."""
    mine, size = waiting.job.spec.tenant, waiting.job.spec.size
    before: list[str] = []
    for turn in waiting.turns:
        if turn.standing.tenant == mine:
            return before
        if size.fits(turn.standing.room):
            before.append(turn.standing.tenant)
    return before


def _place(waiting: Waiting) -> tuple[str, ...]:
    tenants = [turn.standing.tenant for turn in waiting.turns]
    ahead = f"Jobs of {waiting.job.spec.tenant} before it in its pool: {waiting.ahead}"
    if waiting.job.spec.tenant not in tenants:
        return (ahead,)
    turn = tenants.index(waiting.job.spec.tenant) + 1
    return (ahead, f"Its tenant has turn {turn} of {len(tenants)}")


def _over(job: Job, session: Session | None) -> Explanation:
    ended = f" at {when(job.ended_at)}" if job.ended_at else ""
    where = (f"It ran on {job.claim.pod}",) if job.claim is not None else ("It never ran here",)
    sentence = f"It is over{ended}: {job.conclusion or job.state}."
    return Explanation(
        JobWhy.OVER,
        sentence,
        (*where, *_exit(job, session)),
        "Nothing: a job that is over never runs again here.",
    )


def _exit(job: Job, session: Session | None) -> tuple[str, ...]:
    """Say with which code it ended and why, where its runner told that."""
    if session is None or job.spec.id not in {session.job_id, session.executed_job_id}:
        return ()
    code = () if session.exit_code is None else (f"It ended with exit code {session.exit_code}",)
    why = () if session.end_reason in _BY_ITSELF else (f"Its runner said: {session.end_reason}",)
    return (*code, *why)


def _running(job: Job, claim: LiveClaim | None) -> Explanation:
    pod = job.claim.pod if job.claim is not None else "a Pod that is not known"
    since = f" since {when(job.started_at)}" if job.started_at else ""
    runner = f"Its runner is {job.runner_name}"
    if claim is not None and claim.executed_at is None:
        handed = f" at {when(claim.delivered_at)}" if claim.delivered_at else ""
        sentence = f"It was handed to {pod}{handed}; the forge has not said yet that it runs there."
        step = "Wait: if the forge says that it does not run, it goes back to its place by itself."
        return Explanation(JobWhy.HANDED_OVER, sentence, (runner,), step)
    gone = (
        () if claim is not None else ("No claim stands for it: the forge is being asked about it",)
    )
    sentence = f"It runs on {pod}{since}."
    return Explanation(JobWhy.RUNNING, sentence, (runner, *gone), "Nothing.")


def _claimed(job: Job) -> Explanation:
    assert job.claim is not None, "a claimed job has a claim"
    sentence = f"It is being handed to {job.claim.pod}, since {when(job.claim.claimed_at)}."
    step = "Ask again in a few seconds: it runs then, or is back in its place."
    return Explanation(JobWhy.CLAIMED, sentence, (), step)
