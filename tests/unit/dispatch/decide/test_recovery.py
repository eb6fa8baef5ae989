"""Whom to ask the forge about, when, and what its answer means."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.dispatch.decide.recovery import (
    Attribute,
    Doubt,
    EndJob,
    Evidence,
    Inquiries,
    Leave,
    PodState,
    Requeue,
    Sightings,
    doubt_about,
    hold_of,
    soonest,
    verdict,
)
from remuda.dispatch.settings import RecoverySettings
from remuda.model.job import Claim, Job, JobState, LiveClaim
from remuda.ports.forge import ForgeJob, ForgeState
from tests.support.jobs import a_job

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SETTINGS = RecoverySettings()


def a_claim(number: int = 1, pod: str = "p", *, at_s: float = 0) -> Claim:
    return Claim(f"forge/{number}", pod, f"uid-{pod}", NOON + timedelta(seconds=at_s))


def running(number: int = 1, pod: str = "p", *, at_s: float = 0, runner: str = "r") -> Job:
    claim = a_claim(number, pod, at_s=at_s)
    return Job(
        spec=a_job(number),
        state=JobState.RUNNING,
        claim=claim,
        runner_name=runner,
        started_at=NOON,
    )


def live(claim: Claim, *, proven: bool = False) -> LiveClaim:
    spec = a_job(1)
    return LiveClaim(
        claim=claim,
        tenant=spec.tenant,
        repository=spec.repository,
        pool=spec.pool,
        os=spec.os,
        size=spec.size,
        runner_name="r",
        delivered_at=NOON,
        executed_at=NOON if proven else None,
    )


# --- Sightings --------------------------------------------------------------------------------------------------------


def test_a_thing_is_seen_since_its_first_sighting() -> None:
    seen: Sightings[str] = Sightings()

    assert seen.look(["a"], 100.0) == {"a": 0.0}
    assert seen.look(["a", "b"], 110.0) == {"a": 10.0, "b": 0.0}


def test_a_thing_that_one_look_did_not_see_begins_anew() -> None:
    seen: Sightings[str] = Sightings()
    seen.look(["a"], 100.0)
    seen.look([], 110.0)

    assert seen.look(["a"], 120.0) == {"a": 0.0}


def test_after_a_long_gap_nothing_that_was_seen_before_counts() -> None:
    seen: Sightings[str] = Sightings(gap_max_s=30.0)
    seen.look(["a"], 100.0)

    assert seen.look(["a"], 130.0) == {"a": 30.0}
    assert seen.look(["a"], 160.1) == {"a": 0.0}


def test_the_next_look_comes_when_the_first_grace_ends_and_never_at_once() -> None:
    assert soonest([25.0, 4.0], at_most=10.0) == 4.0
    assert soonest([25.0], at_most=10.0) == 10.0
    assert soonest([-5.0], at_most=10.0) == 1.0


# --- Evidence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "pod", "expected"),
    [
        pytest.param(
            live(a_claim()), PodState.ALIVE, Evidence.UNPROVEN, id="handed over and no word since"
        ),
        pytest.param(
            live(a_claim(), proven=True),
            PodState.ALIVE,
            Evidence.PROVEN,
            id="the forge said that it runs",
        ),
        pytest.param(
            live(a_claim()), PodState.ENDED, Evidence.POD_ENDED, id="its Pod ended before any word"
        ),
        pytest.param(
            live(a_claim(), proven=True),
            PodState.ENDED,
            Evidence.POD_ENDED,
            id="a Pod that ended outranks what the forge said before",
        ),
        pytest.param(None, PodState.UNKNOWN, Evidence.POD_ENDED, id="no claim stands behind it"),
        pytest.param(
            live(a_claim()), PodState.UNKNOWN, Evidence.UNPROVEN, id="unknown is not ended"
        ),
        pytest.param(
            live(a_claim(), proven=True),
            PodState.UNKNOWN,
            Evidence.PROVEN,
            id="unknown is not ended for what runs either",
        ),
    ],
)
def test_evidence(held: LiveClaim | None, pod: PodState, expected: Evidence) -> None:
    assert doubt_about(running(), held, pod).evidence is expected


@pytest.mark.parametrize(
    ("claim", "stands"),
    [
        pytest.param(a_claim(), True, id="the same hold"),
        pytest.param(a_claim(at_s=0.000001), False, id="a newer hold of the same Pod"),
        pytest.param(replace(a_claim(), pod_uid="other"), False, id="another Pod of that name"),
        pytest.param(replace(a_claim(), job_id="forge/2"), False, id="it moved to another job"),
    ],
)
def test_a_job_stands_on_its_own_hold_only(*, claim: Claim, stands: bool) -> None:
    assert (hold_of(running(), {"p": live(claim)}) is not None) is stands


# --- Verdicts ---------------------------------------------------------------------------------------------------------

QUEUED = ForgeJob(state=ForgeState.QUEUED)
RUNS = ForgeJob(state=ForgeState.IN_PROGRESS, runner_name="r", started_at=NOON)
DONE = ForgeJob(state=ForgeState.COMPLETED, conclusion="success", runner_name="r", ended_at=NOON)
CANCELLED = ForgeJob(state=ForgeState.COMPLETED, conclusion="cancelled")
GONE = ForgeJob(state=ForgeState.GONE)


@pytest.mark.parametrize(
    ("evidence", "said", "gone_for_s", "kind", "release"),
    [
        pytest.param(Evidence.POD_ENDED, QUEUED, 0, Requeue, None, id="ended and waiting: back"),
        pytest.param(Evidence.UNPROVEN, QUEUED, 0, Requeue, None, id="never registered: back"),
        pytest.param(Evidence.WAITING, QUEUED, 0, Leave, None, id="waits there as here: left"),
        pytest.param(
            Evidence.PROVEN, QUEUED, 0, Leave, None, id="a contradiction ends no live runner"
        ),
        pytest.param(Evidence.UNPROVEN, RUNS, 0, Attribute, None, id="runs, and we missed it"),
        pytest.param(Evidence.WAITING, RUNS, 0, Attribute, None, id="queued here, runs there"),
        pytest.param(
            Evidence.POD_ENDED, RUNS, 0, Attribute, None, id="the forge has not noticed the end yet"
        ),
        pytest.param(
            Evidence.UNPROVEN,
            replace(RUNS, runner_name=""),
            0,
            Leave,
            None,
            id="runs, nobody says where",
        ),
        pytest.param(Evidence.POD_ENDED, DONE, 0, EndJob, True, id="ended there: over, claim too"),
        pytest.param(
            Evidence.UNPROVEN, DONE, 0, EndJob, False, id="over; its executor's claim ends by name"
        ),
        pytest.param(
            Evidence.UNPROVEN,
            CANCELLED,
            0,
            EndJob,
            False,
            id="cancelled while queued: its Pod may get a sibling, so the claim stays",
        ),
        pytest.param(Evidence.PROVEN, DONE, 0, EndJob, False, id="a lost message about the end"),
        pytest.param(Evidence.WAITING, DONE, 0, EndJob, False, id="queued here, over there"),
        pytest.param(Evidence.UNPROVEN, GONE, 0, Leave, None, id="gone once is not enough"),
        pytest.param(Evidence.UNPROVEN, GONE, 59, Leave, None, id="gone for a moment neither"),
        pytest.param(Evidence.UNPROVEN, GONE, 60, EndJob, True, id="gone for a minute: over"),
        pytest.param(Evidence.WAITING, GONE, 60, EndJob, True, id="queued here, gone there"),
        pytest.param(
            Evidence.PROVEN, GONE, 9999, Leave, None, id="gone, but its runner lives: left"
        ),
        pytest.param(
            Evidence.POD_ENDED,
            ForgeJob(state=ForgeState.OTHER),
            0,
            Leave,
            None,
            id="a state that nobody knows: left",
        ),
    ],
)
def test_verdict(
    *, evidence: Evidence, said: ForgeJob, gone_for_s: float, kind: type, release: bool | None
) -> None:
    decided = verdict(Doubt(running(), evidence), said, gone_for_s=gone_for_s, gone_s=60.0)

    assert isinstance(decided, kind)
    if isinstance(decided, EndJob):
        assert decided.release is release


# --- When to ask ------------------------------------------------------------------------------------------------------


def asks(evidence: Evidence, answer: ForgeState | None, until_s: float) -> list[float]:
    """Look every ten seconds, and return when the forge was asked."""
    memory, doubt, asked = Inquiries(SETTINGS), Doubt(running(), evidence), []
    for now in range(0, int(until_s) + 1, 10):
        if memory.due([doubt], float(now), 25):
            asked.append(float(now))
            memory.answered(doubt, answer, float(now))
    return asked


def test_what_ended_is_asked_about_at_once_and_then_at_least_once_a_minute() -> None:
    asked = asks(Evidence.POD_ENDED, ForgeState.IN_PROGRESS, 600)

    assert asked[:4] == [0.0, 10.0, 30.0, 70.0]
    assert max(b - a for a, b in pairwise(asked)) <= 50.0


def test_what_nobody_was_said_to_run_is_asked_about_after_its_grace() -> None:
    assert asks(Evidence.UNPROVEN, None, 60) == [30.0, 40.0, 60.0]


def test_once_the_forge_said_that_it_runs_a_job_costs_a_request_now_and_then() -> None:
    asked = asks(Evidence.UNPROVEN, ForgeState.IN_PROGRESS, 6 * 3600)

    assert asked[0] == 30.0
    assert len(asked) <= 7


def test_a_healthy_job_costs_no_request_in_its_first_quarter_of_an_hour() -> None:
    assert asks(Evidence.PROVEN, ForgeState.IN_PROGRESS, 899) == []


def test_gone_is_asked_again_until_it_has_been_said_for_long_enough() -> None:
    memory, doubt = Inquiries(SETTINGS), Doubt(running(), Evidence.WAITING)
    memory.due([doubt], 0.0, 25)
    memory.answered(doubt, ForgeState.GONE, 0.0)

    assert memory.due([doubt], 59.0, 25) == ()
    assert memory.due([doubt], 60.0, 25) == (doubt,)
    assert memory.gone_for(doubt, 60.0) == 60.0


def test_any_other_answer_takes_the_first_word_of_gone_back() -> None:
    memory, doubt = Inquiries(SETTINGS), Doubt(running(), Evidence.UNPROVEN)
    memory.answered(doubt, ForgeState.GONE, 0.0)
    memory.answered(doubt, None, 30.0)
    memory.answered(doubt, ForgeState.GONE, 60.0)

    assert memory.gone_for(doubt, 60.0) == 0.0


def test_new_evidence_about_a_job_is_acted_on_at_once() -> None:
    memory = Inquiries(SETTINGS)
    healthy = Doubt(running(), Evidence.PROVEN)
    memory.due([healthy], 0.0, 25)
    memory.answered(healthy, ForgeState.IN_PROGRESS, 0.0)
    ended = replace(healthy, evidence=Evidence.POD_ENDED)

    assert memory.due([ended], 10.0, 25) == (ended,)


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(running(at_s=5), id="claimed anew"),
        pytest.param(running(runner="r2"), id="handed over again to a new runner"),
    ],
)
def test_what_was_handed_over_since_gets_the_whole_grace(again: Job) -> None:
    memory = Inquiries(SETTINGS)
    memory.due([Doubt(running(), Evidence.UNPROVEN)], 0.0, 25)

    assert memory.due([Doubt(again, Evidence.UNPROVEN)], 30.0, 25) == ()


def test_at_most_so_many_are_asked_about_in_one_turn_the_strongest_evidence_first() -> None:
    doubts = [Doubt(running(n), Evidence.UNPROVEN) for n in range(1, 9)]
    ended = Doubt(running(9), Evidence.POD_ENDED)
    memory = Inquiries(SETTINGS)
    memory.due([*doubts, ended], 0.0, 0)

    chosen = memory.due([*doubts, ended], 30.0, 3)

    assert chosen == (ended, doubts[0], doubts[1])


def test_many_whose_runners_died_do_not_starve_one_that_nobody_took_up() -> None:
    """A zone is lost, and for long minutes the forge says of all its jobs that they run."""
    dead = [Doubt(running(n), Evidence.POD_ENDED) for n in range(2, 302)]
    unproven = Doubt(running(1), Evidence.UNPROVEN)
    proven = Doubt(running(999), Evidence.PROVEN)
    memory, asked = Inquiries(SETTINGS), dict[str, float]()
    for now in map(float, range(0, 1200, 10)):
        due = memory.due([*dead, unproven, proven], now, SETTINGS.actions_max)
        assert len(due) <= SETTINGS.actions_max
        assert len(set(due)) == len(due)
        for doubt in due:
            asked.setdefault(doubt.job.spec.id, now)
            memory.answered(doubt, ForgeState.IN_PROGRESS, now)

    assert asked["forge/1"] <= 40
    assert asked["forge/999"] <= SETTINGS.known_running_s + 10
    assert len(asked) == 302, "and everybody is asked about"


@given(st.permutations([running(n) for n in range(1, 6)]))
def test_the_order_of_the_list_does_not_matter(jobs: list[Job]) -> None:
    memory = Inquiries(SETTINGS)
    due = memory.due([Doubt(job, Evidence.POD_ENDED) for job in jobs], 0.0, 3)

    assert [doubt.job.spec.id for doubt in due] == ["forge/1", "forge/2", "forge/3"]


def test_whoever_was_passed_over_comes_first_the_next_time() -> None:
    memory = Inquiries(SETTINGS)
    doubts = [Doubt(running(n), Evidence.POD_ENDED) for n in (1, 2)]
    first = memory.due(doubts, 0.0, 1)
    memory.answered(first[0], None, 0.0)

    assert memory.due(doubts, 10.0, 1) == (doubts[1],)
