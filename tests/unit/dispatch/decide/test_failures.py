"""What follows from a forge's failure."""

from __future__ import annotations

from datetime import timedelta

import pytest

from remuda.dispatch.decide.failures import hold_of, judge, merged
from remuda.dispatch.settings import PollSettings
from remuda.model.job import Job
from remuda.ports.forge import ForgeError, ForgeRefused, ForgeThrottled, ForgeUnavailable, Scope
from remuda.ports.jobs import Without
from tests.support.jobs import a_job

SETTINGS = PollSettings(hold_s=15.0, hold_max_s=300.0)
JOB = Job(spec=a_job(1), attempts=1)


def refused(scope: Scope) -> ForgeRefused:
    return ForgeRefused("No", why="403", fix="Ask", scope=scope)


def throttled(after_s: float) -> ForgeThrottled:
    return ForgeThrottled("No", why="429", fix="Wait", retry_after_s=after_s)


OUTAGE = ForgeUnavailable("No", why="502", fix="Wait")
THIS_JOB = Without(jobs=frozenset({"forge/1"}))
THIS_REPOSITORY = Without(repositories=frozenset({"acme/app"}))
THIS_TENANT = Without(tenants=frozenset({"acme"}))


@pytest.mark.parametrize(
    ("error", "word", "without", "hold_s", "pass_over_s", "outage"),
    [
        pytest.param(refused(Scope.JOB), "refused", THIS_JOB, 15, 0, False, id="a job"),
        pytest.param(
            refused(Scope.REPOSITORY), "refused", THIS_REPOSITORY, 15, 0, False, id="a repository"
        ),
        pytest.param(refused(Scope.TENANT), "refused", THIS_TENANT, 15, 15, False, id="a tenant"),
        pytest.param(throttled(40), "throttled", THIS_TENANT, 40, 40, False, id="too much"),
        pytest.param(
            throttled(9999), "throttled", THIS_TENANT, 300, 300, False, id="too much, bounded"
        ),
        pytest.param(throttled(-5), "throttled", THIS_TENANT, 1, 1, False, id="too much, nonsense"),
        pytest.param(OUTAGE, "unavailable", THIS_JOB, 15, 0, True, id="an outage"),
        pytest.param(
            ForgeError("No", why="?", fix="?"),
            "unavailable",
            THIS_JOB,
            15,
            0,
            True,
            id="what is not known is taken for an outage",
        ),
    ],
)
def test_a_failure_concerns(
    error: ForgeError,
    word: str,
    without: Without,
    hold_s: int,
    pass_over_s: int,
    outage: bool,  # noqa: FBT001 - a column
) -> None:
    judgement = judge(error, JOB, SETTINGS)

    assert (judgement.word, judgement.without) == (word, without)
    assert judgement.hold == timedelta(seconds=hold_s)
    assert (judgement.pass_over_s, judgement.outage) == (pass_over_s, outage)
    assert judgement.registered is (None if outage else False), "only a no is a no"


@pytest.mark.parametrize(
    ("attempts", "hold_s"),
    [(0, 15), (1, 15), (2, 30), (3, 60), (5, 240), (6, 300), (10_000, 300)],
)
def test_a_job_is_held_twice_as_long_each_time_up_to_a_bound(attempts: int, hold_s: int) -> None:
    assert hold_of(Job(spec=a_job(1), attempts=attempts), SETTINGS) == timedelta(seconds=hold_s)


def test_an_outage_holds_no_job_for_long_however_often_it_was_tried() -> None:
    assert judge(OUTAGE, Job(spec=a_job(1), attempts=9), SETTINGS).hold == timedelta(seconds=30)


def test_exclusions_add_up() -> None:
    both = merged(THIS_JOB, merged(THIS_REPOSITORY, THIS_TENANT))
    assert both == Without(frozenset({"acme"}), frozenset({"acme/app"}), frozenset({"forge/1"}))
