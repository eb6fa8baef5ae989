"""How far a local job is, how it ended, and whether its runner must stop."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from remuda.agent.decide.recorded import State, VmRecord
from remuda.agent.decide.verdict import settle
from remuda.dispatch.decide.local_jobs import (
    TOLD_WITHIN,
    Runs,
    Waits,
    deadline_of,
    exit_of,
    how_far,
    output_of,
    stop_reason,
    within,
)
from remuda.model.job import Claim, LiveClaim, Os, Session, Size
from remuda.model.output import Output
from remuda.ports.local_jobs import LocalEnd, LocalJob
from remuda.ports.vms import Ending, RunEnd
from tests.support.jobs import START
from tests.support.local_jobs import a_local_job, an_end

NOW = START + timedelta(minutes=5)
SIZE = Size(2, 4096)
BEGUN = a_local_job(started_at=START, begun_by="u1", pod="a", tells_end=True)


def a_claim(uid: str = "u1") -> LiveClaim:
    return LiveClaim(
        claim=Claim("local-1", "a", uid, START),
        tenant="local",
        repository="local/ann",
        pool="linux",
        os=Os.LINUX,
        size=SIZE,
    )


def a_session(uid: str = "u1", **changes: Any) -> Session:  # noqa: ANN401 - fields of what it builds
    return Session(
        pod="a",
        pod_uid=uid,
        job_id="local-1",
        tenant="local",
        repository="local/ann",
        pool="linux",
        os=Os.LINUX,
        size=SIZE,
        runner_name="r",
        started_at=START,
        **changes,
    )


def read_off(conclusion: str, at: datetime = NOW, **changes: Any) -> LocalEnd:  # noqa: ANN401 - fields
    """Return an end that its agent has still to confirm."""
    return ended(conclusion, at, more_until=NOW + TOLD_WITHIN, **changes)


def ended(conclusion: str, at: datetime = NOW, **changes: Any) -> LocalEnd:  # noqa: ANN401 - fields
    return LocalEnd(conclusion=conclusion, at=at, **changes)


@pytest.mark.parametrize(
    ("job", "claim", "session", "far"),
    [
        pytest.param(a_local_job(), None, None, Waits(), id="one that nobody began waits"),
        pytest.param(
            a_local_job(),
            a_claim(),
            a_session(),
            Waits(),
            id="one that was handed over and not begun still waits",
        ),
        pytest.param(
            a_local_job(cancelled_at=START),
            a_claim(),
            a_session(),
            ended("cancelled", reason="cancelled before it began"),
            id="one that was cancelled before it began is over, whoever has it",
        ),
        pytest.param(BEGUN, a_claim(), a_session(), Runs(), id="one whose Pod is there runs"),
        pytest.param(
            BEGUN, None, a_session(), Runs(), id="one with an open session runs without a claim"
        ),
        pytest.param(BEGUN, a_claim(), None, Runs(), id="one with a claim runs without a session"),
        pytest.param(
            a_local_job(started_at=START, begun_by="u1", pod="a", end=an_end("failure")),
            None,
            a_session(ended_at=NOW, exit_code=0),
            an_end("failure"),
            id="one that is over stays as it ended",
        ),
        pytest.param(
            BEGUN,
            None,
            a_session(ended_at=NOW, exit_code=0, end_reason="Completed"),
            read_off("success", exit_code=0, reason="Completed"),
            id="a Pod that ended with 0 did its job",
        ),
        pytest.param(
            replace(BEGUN, tells_end=False),
            None,
            a_session(ended_at=NOW, exit_code=0, end_reason="Completed"),
            ended("success", exit_code=0, reason="Completed"),
            id="nothing more is waited for from a Pod without an agent",
        ),
        pytest.param(
            BEGUN,
            None,
            a_session(ended_at=NOW, exit_code=137, end_reason="OOMKilled"),
            read_off("failure", exit_code=137, reason="OOMKilled"),
            id="a Pod that ended with another code failed",
        ),
        pytest.param(
            BEGUN,
            None,
            a_session(ended_at=NOW, exit_code=1, end_reason="NoExitReported"),
            read_off("failure", reason="NoExitReported"),
            id="a code that its host made up for a VM that said nothing is no code",
        ),
        pytest.param(
            BEGUN,
            a_claim(),
            a_session(ended_at=NOW),
            ended("lost", reason="its runner is gone", more_until=NOW),
            id="a Pod that ended without a code lost its job",
        ),
        pytest.param(
            a_local_job(started_at=START, begun_by="u1", pod="a", cancelled_at=START),
            None,
            a_session(ended_at=NOW),
            ended("cancelled", reason="its runner is gone", more_until=NOW),
            id="a cancelled job whose Pod is gone is cancelled, not lost",
        ),
        pytest.param(
            BEGUN,
            None,
            None,
            ended("lost", reason="nothing is known of its runner any more", more_until=NOW),
            id="one of whose runner nothing is known is lost",
        ),
        pytest.param(
            BEGUN,
            a_claim("u2"),
            a_session("u2", ended_at=NOW, exit_code=0),
            ended("lost", reason="nothing is known of its runner any more", more_until=NOW),
            id="a later Pod of the same name says nothing about it",
        ),
    ],
)
def test_how_far(job: Any, claim: Any, session: Any, far: Any) -> None:  # noqa: ANN401 - of the table
    assert how_far(job, claim, session, NOW) == far


@pytest.mark.parametrize("how", [None, *Ending])
@pytest.mark.parametrize("deleting", [False, True])
def test_an_end_that_an_agent_saw_without_its_guests_word_names_no_code(
    how: Ending | None,
    deleting: bool,  # noqa: FBT001 - of the table
) -> None:
    verdict = settle(
        VmRecord(
            pod_uid="u1",
            namespace="ci",
            pod="a",
            image="linux",
            state=State.DELIVERED,
            accepted_at=START,
            started_at=START,
            ready_at=START,
        ),
        None,
        None if how is None else RunEnd(how=how),
        NOW,
        deleting=deleting,
    )
    session = a_session(ended_at=NOW, exit_code=verdict.exit_code, end_reason=verdict.reason)

    assert how_far(BEGUN, None, session, NOW) == read_off("failure", reason=verdict.reason)


@pytest.mark.parametrize(
    ("job", "output"),
    [
        pytest.param(BEGUN, Output.GROWING, id="one that is not over"),
        pytest.param(
            replace(BEGUN, end=ended("success")), Output.FINAL, id="one that told its end"
        ),
        pytest.param(
            replace(BEGUN, end=read_off("success")), Output.AWAITED, id="one whose Pod told it"
        ),
        pytest.param(
            replace(BEGUN, end=ended("success", more_until=NOW)),
            Output.UNCONFIRMED,
            id="one that has not told it in time",
        ),
    ],
)
def test_whether_all_is_here_that_a_job_printed(job: LocalJob, output: Output) -> None:
    assert output_of(job, NOW) is output


@pytest.mark.parametrize(
    ("code", "cancelled_s", "deadline_s", "conclusion"),
    [
        pytest.param(0, None, None, "success", id="0 is success"),
        pytest.param(1, None, None, "failure", id="anything else is failure"),
        pytest.param(-9, None, None, "failure", id="a signal is failure"),
        pytest.param(0, 10, 10, "success", id="who was done in spite of a stop was done"),
        pytest.param(143, 10, None, "cancelled", id="who ended after a cancel was cancelled"),
        pytest.param(143, 10, 5, "cancelled", id="a cancel counts before the deadline"),
        pytest.param(143, None, 10, "timed_out", id="who ended after the deadline timed out"),
        pytest.param(
            143, None, 301, "failure", id="who ended before the deadline failed by itself"
        ),
        pytest.param(143, 301, None, "failure", id="who ended before the cancel failed by itself"),
    ],
)
def test_exits(
    code: int, cancelled_s: float | None, deadline_s: float | None, conclusion: str
) -> None:
    def after(seconds: float | None) -> datetime | None:
        return None if seconds is None else START + timedelta(seconds=seconds)

    job = a_local_job(cancelled_at=after(cancelled_s))
    end = exit_of(job, code, "why", at=NOW, deadline=after(deadline_s))

    assert end == LocalEnd(conclusion=conclusion, at=NOW, exit_code=code, reason="why")


@pytest.mark.parametrize(
    ("job", "deadline_s", "says"),
    [
        pytest.param(a_local_job(), None, "", id="nothing is wrong"),
        pytest.param(a_local_job(), 301, "", id="there is time left"),
        pytest.param(a_local_job(), 300, "may run for 600 s", id="the time is over"),
        pytest.param(a_local_job(cancelled_at=START), 900, "cancelled", id="it was cancelled"),
        pytest.param(a_local_job(end=an_end("lost")), 900, "is over: lost", id="it is over"),
    ],
)
def test_when_a_runner_must_stop(job: Any, deadline_s: float | None, says: str) -> None:  # noqa: ANN401 - of the table
    deadline = None if deadline_s is None else START + timedelta(seconds=deadline_s)
    said = stop_reason(job, deadline, NOW)

    assert says in said
    assert bool(said) is bool(says)


def test_the_time_of_a_job_runs_from_its_claim() -> None:
    assert deadline_of(a_local_job(), None) is None
    assert deadline_of(BEGUN, NOW) == NOW + timedelta(seconds=600)
    assert deadline_of(BEGUN, None) == START + timedelta(seconds=600)


@pytest.mark.parametrize(
    ("said_s", "bounded_s"),
    [
        pytest.param(None, 300, id="no time is now"),
        pytest.param(60, 60, id="a time in between is taken"),
        pytest.param(9000, 300, id="the future is now"),
        pytest.param(-60, 0, id="nothing ends before it began"),
    ],
)
def test_times_of_runners_are_bounded(said_s: float | None, bounded_s: float) -> None:
    said = None if said_s is None else START + timedelta(seconds=said_s)
    assert within(said, START, NOW) == START + timedelta(seconds=bounded_s)
