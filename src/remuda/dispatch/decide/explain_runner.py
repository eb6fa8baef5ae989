"""
Why a runner does or does not take jobs, and which pool serves a set of labels. Pure.

The verdicts are the desk's own (``drain``) and the intake's own (``labels``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from remuda.dispatch.decide.drain import Leave, Wait, drain
from remuda.dispatch.decide.labels import Chosen, choose, fork_denied
from remuda.dispatch.decide.wording import Explanation, amount, listed, when
from remuda.kube.runner_pool import Forks
from remuda.kube.runner_view import runner_of
from remuda.model.runner import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.kube.core import Pod
    from remuda.kube.runner_pool import RunnerPool
    from remuda.model.job import LiveClaim, Session
    from remuda.model.runner import Runner


class RunnerWhy(StrEnum):
    """Why a runner does or does not take jobs."""

    TAKES_JOBS = "takes_jobs"
    HAS_JOB = "has_job"
    SPENT = "had_its_job"
    CLEANING = "holds_a_stamp"
    STARTING = "starting"
    UNSCHEDULABLE = "unschedulable"
    LEAVING = "leaving"
    WAITS = "waits"
    ENDED = "ended"
    GONE = "gone"


class LabelsWhy(StrEnum):
    """Whether a pool serves labels. Else the reason is that of ``labels.Unmatched``."""

    SERVED = "served"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerFacts:
    """All that is known about a runner."""

    name: str
    pod: Pod | None = None
    pool: RunnerPool | None = None
    claim: LiveClaim | None = None
    session: Session | None = None


def explain_runner(facts: RunnerFacts) -> Explanation:
    """Say why a runner does or does not take jobs."""
    if facts.pod is None:
        return _gone(facts)
    runner = runner_of(facts.pod)
    held = _holds(facts, facts.pod)
    if runner.phase is Phase.ENDED:
        sentence = f"{facts.name} has ended; the operator takes its Pod away."
        return Explanation(RunnerWhy.ENDED, sentence, (), "Nothing.")
    if held is not None:
        return held
    verdict = drain(facts.pod, facts.pool)
    if isinstance(verdict, Leave):
        sentence = (
            f"{facts.name} takes no job: {verdict.reason}. It is told to go at its next poll."
        )
        return Explanation(
            RunnerWhy.LEAVING,
            sentence,
            (),
            "Nothing: the operator replaces it if the pool wants it.",
        )
    if isinstance(verdict, Wait):
        sentence = f"{facts.name} gets no job for now: {verdict.reason}."
        return Explanation(
            RunnerWhy.WAITS, sentence, (), "Mend what is named; see its pool's conditions."
        )
    return _idle(facts, runner)


def explain_labels(
    labels: Sequence[str], pools: Iterable[RunnerPool], *, fork: bool = False
) -> Explanation:
    """Say which pool a job with these labels goes to, or why none takes it."""
    choice = choose(labels, pools)
    asked = f"It asks for {listed(labels) or 'nothing'}"
    if isinstance(choice, Chosen) and fork and choice.pool.spec.forks is Forks.DENY:
        choice = fork_denied(choice.pool)
    if not isinstance(choice, Chosen):
        return Explanation(choice.reason, choice.sentence, (asked,), choice.fix)
    sentence = f"Pool {choice.pool.name} serves it, by its label {choice.label}."
    size = f"It takes {amount(choice.size)} of its tenant's limit for {choice.os}"
    return Explanation(LabelsWhy.SERVED, sentence, (asked, size), "Nothing.")


def _gone(facts: RunnerFacts) -> Explanation:
    known: tuple[str, ...] = ()
    if facts.session is not None:
        until = (
            when(facts.session.ended_at)
            if facts.session.ended_at
            else "an end that is not known yet"
        )
        known = (
            f"It had job {facts.session.executed_job_id or facts.session.job_id}, until {until}",
        )
    sentence = f"{facts.name} is gone: there is no such Pod."
    return Explanation(RunnerWhy.GONE, sentence, known, "Nothing.")


def _holds(facts: RunnerFacts, pod: Pod) -> Explanation | None:
    """Say what a Pod holds or has held: it gets one job in its life."""
    claim, session = facts.claim, facts.session
    if claim is not None and claim.claim.pod_uid == pod.uid:
        state = (
            "runs"
            if claim.executed_at
            else "was handed"
            if claim.delivered_at
            else "is being handed"
        )
        sentence = f"{facts.name} {state} job {claim.claim.job_id} of {claim.tenant}."
        since = f"It was claimed at {when(claim.claim.claimed_at)}"
        return Explanation(RunnerWhy.HAS_JOB, sentence, (since,), "Nothing: it gets no second job.")
    if session is not None and session.pod_uid == pod.uid:
        sentence = f"{facts.name} has had its one job, {session.executed_job_id or session.job_id}."
        return Explanation(RunnerWhy.SPENT, sentence, (), "Nothing: it ends and is replaced.")
    if runner_of(pod).phase is Phase.BUSY:
        sentence = f"{facts.name} is marked as busy, and no claim says with what."
        step = "Wait: it is being given a job now, or recovery takes the mark away within minutes."
        return Explanation(RunnerWhy.CLEANING, sentence, (), step)
    return None


def _idle(facts: RunnerFacts, runner: Runner) -> Explanation:
    if runner.phase is Phase.STARTING and runner.unschedulable_since is not None:
        sentence = f"{facts.name} has no host: {runner.unschedulable_why.rstrip('. ') or 'no reason is given'}."
        step = "Give its fleet room: see the hosts with GET /api/v1/hosts."
        return Explanation(RunnerWhy.UNSCHEDULABLE, sentence, (), step)
    if runner.phase is Phase.STARTING:
        where = f" on {runner.node}" if runner.node else ""
        since = f"It was made at {when(runner.created_at)}"
        sentence = f"{facts.name} starts{where}, and asks for a job once it is warm."
        return Explanation(RunnerWhy.STARTING, sentence, (since,), "Wait.")
    since = f"It has been warm since {when(runner.warm_at)}" if runner.warm_at else "It is warm"
    sentence = f"{facts.name} takes the next job of its pool."
    step = "Nothing. If jobs wait in its pool, ask why one does: GET /api/v1/jobs/{job_id}/explain."
    return Explanation(RunnerWhy.TAKES_JOBS, sentence, (since,), step)
