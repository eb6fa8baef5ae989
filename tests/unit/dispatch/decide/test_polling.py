"""How a forge is asked that sends no messages: how often, about which repositories, about which jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.dispatch.decide.polling import (
    after_failures,
    first_of,
    look_again_s,
    missing,
    pace,
    room,
)
from remuda.dispatch.settings import IntakeSettings, PollingSettings
from remuda.model.job import Job, JobSpec, Os, Size
from remuda.ports.forge import Action, Announcement, Spent, Swept

HOW = PollingSettings()
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def a_job(number: int = 1, repository: str = "acme/app") -> Job:
    spec = JobSpec(
        id=f"forge/{number}",
        tenant="acme",
        repository=repository,
        pool="fast",
        os=Os.LINUX,
        size=Size(1, 1024),
        queued_at=AT,
        label="fast",
        labels=("fast",),
    )
    return Job(spec=spec)


def spent(asked: int = 4, charged: int = 0, left: int | None = 4000, **more: float) -> Spent:
    made = Spent(asked=asked, charged=charged, per_minute_max=450, left=left, resets_s=3600.0)
    return replace(made, **more)  # type: ignore[arg-type] # floats only


@pytest.mark.parametrize(
    ("costs", "wait_s", "why"),
    [
        pytest.param((), 5.0, "", id="nobody installed the App yet"),
        pytest.param((spent(),), 5.0, "", id="nothing changed, so it costs nothing"),
        pytest.param((spent(charged=4),), 5.0, "", id="four requests in five seconds fit the hour"),
        pytest.param((spent(charged=10),), 9.0, "one turn counts 10", id="ten do not"),
        pytest.param((spent(charged=10, left=None),), 5.0, "", id="a limit that nobody told"),
        pytest.param((spent(charged=1, left=0),), 120.0, "0 are left", id="nothing is left"),
        pytest.param((spent(charged=1, left=0, resets_s=9.0),), 9.0, "0 are left", id="for 9 s"),
        pytest.param((spent(asked=37),), 5.0, "", id="as many as fit a minute"),
        pytest.param((spent(asked=120),), 16.0, "of 450 in a minute", id="more than fit a minute"),
        pytest.param((spent(asked=9000),), 120.0, "of 450", id="far more"),
        pytest.param((spent(silent_s=60.0),), 60.0, "silence for 60 s", id="told to be silent"),
        pytest.param((spent(silent_s=900.0),), 900.0, "silence", id="for longer than we would"),
        pytest.param((spent(), spent(charged=10)), 9.0, "counts 10", id="the dearest sets it"),
        pytest.param((spent(asked=120, charged=10),), 16.0, "minute", id="the narrowest limit"),
    ],
)
def test_the_pace_keeps_within_every_limit(
    costs: tuple[Spent, ...], wait_s: float, why: str
) -> None:
    found = pace(costs, HOW)
    assert found.wait_s == pytest.approx(wait_s)
    assert why in found.why
    assert bool(found.why) == bool(why)


@given(
    charged=st.integers(0, 1000),
    left=st.integers(1, 12_500),
    resets_s=st.floats(1.0, 3600.0),
)
def test_turns_of_that_cost_never_take_more_than_what_is_left(
    charged: int, left: int, resets_s: float
) -> None:
    found = pace((spent(asked=charged, charged=charged, left=left, resets_s=resets_s),), HOW)
    turns = resets_s / found.wait_s
    assert found.wait_s == HOW.longest_s or charged * turns <= left * 1.001


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(1, 10.0), (2, 20.0), (4, 80.0), (5, 120.0), (10_000, 120.0)]
)
def test_a_forge_that_fails_is_asked_less_often(failures: int, wait_s: float) -> None:
    assert after_failures(failures, HOW).wait_s == wait_s
    assert "failed" in after_failures(failures, HOW).why


def test_a_job_that_is_on_no_list_is_asked_about_less_and_less() -> None:
    waits = [look_again_s(times, HOW) for times in range(10)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (5.0, 300.0)


@pytest.mark.parametrize(
    ("active", "looked_at"),
    [(0, 16), (1, 16), (10, 16), (11, 17), (20, 30), (40, 60), (41, 60), (1000, 60)],
)
def test_a_turn_has_room_for_the_active_ones_and_some_others(active: int, looked_at: int) -> None:
    most = IntakeSettings().sweep_repositories_max
    assert room(active, HOW, most) == looked_at


def test_repositories_with_an_open_job_come_first_then_the_newest() -> None:
    jobs = (a_job(1, "acme/open"), a_job(2, "acme/open"), a_job(3, "acme/also"))
    first = first_of(jobs, ("acme/new", "acme/also", "acme/older"), 4)
    assert first == ("acme/open", "acme/also", "acme/new", "acme/older")
    assert first_of(jobs, ("acme/new",), 2) == ("acme/open", "acme/also")


SWEPT = Swept(found=(), repositories=1, looked_at=frozenset({"acme/app"}))
ENDED = Announcement(
    action=Action.COMPLETED, job_id="forge/1", tenant="acme", repository="acme/app", labels=()
)


@pytest.mark.parametrize(
    ("swept", "kept_back", "asked"),
    [
        pytest.param(SWEPT, (), ("forge/1",), id="on no list"),
        pytest.param(replace(SWEPT, alive=frozenset({"forge/1"})), (), (), id="on a list"),
        pytest.param(replace(SWEPT, found=(ENDED,)), (), (), id="its end was told"),
        pytest.param(replace(SWEPT, looked_at=frozenset()), (), (), id="nobody looked there"),
        pytest.param(SWEPT, ("forge/1",), (), id="asked about a moment ago"),
    ],
)
def test_a_job_is_asked_about_when_the_lists_of_its_repository_have_it_no_more(
    swept: Swept, kept_back: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    found = missing((a_job(repository="Acme/App"),), swept, kept_back=kept_back, most=20)
    assert tuple(job.spec.id for job in found) == asked


def test_only_so_many_are_asked_about_at_once() -> None:
    assert len(missing(map(a_job, range(50)), SWEPT, kept_back=(), most=20)) == 20
