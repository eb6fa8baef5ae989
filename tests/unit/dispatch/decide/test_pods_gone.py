"""Which claims and sessions have lost their Pod, and when such a Pod ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from remuda.dispatch.decide.pods_gone import Missing, PodSeen, ended_at_most, missing, outlived
from remuda.model.job import Claim, Completion, LiveClaim, Session
from tests.support.jobs import a_job

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def a_live(pod: str = "p", *, missing_since: datetime | None = None) -> LiveClaim:
    spec = a_job(1)
    return LiveClaim(
        claim=Claim(spec.id, pod, f"uid-{pod}", NOON),
        tenant=spec.tenant,
        repository=spec.repository,
        pool=spec.pool,
        os=spec.os,
        size=spec.size,
        missing_since=missing_since,
    )


def a_session(pod: str = "p", *, executed: str = "", claimed: str = "forge/1") -> Session:
    spec = a_job(1)
    return Session(
        pod=pod,
        pod_uid=f"uid-{pod}",
        job_id=claimed,
        executed_job_id=executed,
        tenant=spec.tenant,
        repository=spec.repository,
        pool=spec.pool,
        os=spec.os,
        size=spec.size,
        runner_name="r",
        started_at=NOON,
    )


HERE, GONE = a_live(), a_live(missing_since=NOON)
UP = {"p": PodSeen("uid-p")}
OTHERS = {"q": PodSeen("uid-q")}
AGAIN = {"p": PodSeen("uid-p-2")}
OVER = {"p": PodSeen("uid-p", ended=True)}


@pytest.mark.parametrize(
    ("live", "pods", "expected"),
    [
        pytest.param(HERE, UP, Missing(), id="present is kept"),
        pytest.param(HERE, OTHERS, Missing(news=(HERE,)), id="the first absence is only noted"),
        pytest.param(GONE, OTHERS, Missing(absent=(GONE,)), id="absent again"),
        pytest.param(GONE, UP, Missing(back=(GONE,)), id="there again: the note goes"),
        pytest.param(
            GONE, AGAIN, Missing(absent=(GONE,)), id="another Pod of that name is another Pod"
        ),
        pytest.param(HERE, OVER, Missing(ended=(HERE,)), id="stopped needs no second look"),
        pytest.param(GONE, OVER, Missing(ended=(GONE,)), id="stopped, and noted as missing before"),
    ],
)
def test_claims(live: LiveClaim, pods: dict[str, PodSeen], expected: Missing) -> None:
    assert missing([live], [], pods) == expected


SESSION = a_session()


@pytest.mark.parametrize(
    ("claims", "pods", "expected"),
    [
        pytest.param([], UP, Missing(), id="present is kept"),
        pytest.param([], OTHERS, Missing(absent_sessions=(SESSION,)), id="absent"),
        pytest.param([], AGAIN, Missing(absent_sessions=(SESSION,)), id="only a namesake is there"),
        pytest.param([], OVER, Missing(ended_sessions=(SESSION,)), id="stopped"),
        pytest.param([GONE], OTHERS, Missing(absent=(GONE,)), id="its claim stands: goes with it"),
    ],
)
def test_sessions(claims: list[LiveClaim], pods: dict[str, PodSeen], expected: Missing) -> None:
    assert missing(claims, [SESSION], pods) == expected


def over(job_id: str, after_s: float) -> dict[str, Completion]:
    return {job_id: Completion(job_id, "success", NOON + timedelta(seconds=after_s))}


@pytest.mark.parametrize(
    ("session", "completions", "expected_s"),
    [
        pytest.param(a_session(), {}, 240, id="nobody knows its job's end: when it was missed"),
        pytest.param(a_session(), over("forge/1", 60), 60, id="its job's end"),
        pytest.param(
            a_session(executed="forge/2"),
            over("forge/1", 60) | over("forge/2", 90),
            90,
            id="the executed job outranks the claimed one",
        ),
        pytest.param(
            a_session(executed="forge/2"),
            over("forge/1", 60),
            60,
            id="the claimed one if the executed one is not over",
        ),
        pytest.param(a_session(), over("forge/1", 9999), 300, id="never in the future"),
        pytest.param(a_session(), over("forge/1", -60), 0, id="never before it began"),
        pytest.param(None, {}, 240, id="without a session"),
    ],
)
def test_the_end_of_a_pod_that_nobody_saw_end(
    session: Session | None, completions: dict[str, Completion], expected_s: float
) -> None:
    missed = NOON + timedelta(seconds=240)
    at = ended_at_most(session, completions, unseen_since=missed, now=LATER)

    assert (at - NOON).total_seconds() == expected_s


def test_a_claim_outlives_its_job_when_that_is_over() -> None:
    other = replace(HERE, claim=replace(HERE.claim, job_id="forge/2"))

    assert outlived([HERE, other], {"forge/2"}) == (other,)
