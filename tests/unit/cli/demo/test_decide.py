"""What the demo plans, and what it makes of what it saw: a demo that cannot fail shows nothing."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.cli.demo.decide.account import (
    Act,
    Fate,
    JobRecord,
    RollRecord,
    Times,
    fate_of,
    judge,
    table,
)
from remuda.cli.demo.decide.plan import JOBS_MIN, RUNNERS_MIN, PlannedJob, output, script, waves
from remuda.cli.demo.decide.roll import Most, Sight, most_unavailable
from remuda.model.runner import Mark, Phase, Runner

if TYPE_CHECKING:
    from pathlib import Path

ZERO = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
GOOD = JobRecord(
    name="job-01",
    began=1,
    finished=1,
    conclusion="success",
    exit_code=0,
    image="process",
    runner="demo-a",
    times=Times(
        queued=ZERO + timedelta(seconds=10.5),
        claimed=ZERO + timedelta(seconds=10.75),
        delivered=ZERO + timedelta(seconds=11),
        started=ZERO + timedelta(seconds=11.25),
        ended=ZERO + timedelta(seconds=120),
    ),
)
ROLL = RollRecord(unavailable_max=2, cap=2)


# --- What became of a job ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "fate", "why"),
    [
        pytest.param(GOOD, Fate.OK, "", id="it ran once and ended well"),
        pytest.param(
            replace(GOOD, began=0, finished=0, conclusion="", exit_code=None),
            Fate.LOST,
            "it never ran; the fleet says that it is not over",
            id="it was never begun",
        ),
        pytest.param(
            replace(GOOD, began=0, finished=0, conclusion="lost", exit_code=None),
            Fate.LOST,
            "it never ran; the fleet says lost",
            id="its runner died before it began",
        ),
        pytest.param(
            replace(GOOD, began=0, finished=0),
            Fate.LOST,
            "it never ran; the fleet says success",
            id="the fleet says success of a job that never ran",
        ),
        pytest.param(
            replace(GOOD, finished=0, conclusion="lost", exit_code=None),
            Fate.KILLED,
            "it began and did not end; the fleet says lost",
            id="its runner died under it",
        ),
        pytest.param(
            replace(GOOD, finished=0, conclusion="failure", exit_code=137),
            Fate.KILLED,
            "it began and did not end; the fleet says failure",
            id="it was killed",
        ),
        pytest.param(replace(GOOD, began=2, finished=2), Fate.WRONG, "it ran 2 times", id="twice"),
        pytest.param(replace(GOOD, began=2), Fate.WRONG, "it ran 2 times", id="begun twice"),
        pytest.param(
            replace(GOOD, conclusion="lost", exit_code=None),
            Fate.LOST,
            "it ended well, and the fleet says lost, exit code None",
            id="nobody knows how it ended",
        ),
        pytest.param(
            replace(GOOD, exit_code=1),
            Fate.LOST,
            "it ended well, and the fleet says success, exit code 1",
            id="the exit code is another",
        ),
        pytest.param(
            replace(GOOD, output_ok=False),
            Fate.WRONG,
            "what it printed did not come back as it was",
            id="its output is not what it printed",
        ),
        pytest.param(
            replace(GOOD, image=""),
            Fate.WRONG,
            "nobody knows the image of its runner demo-a",
            id="its runner was never seen",
        ),
        pytest.param(
            replace(GOOD, image="", runner=""),
            Fate.WRONG,
            "nobody knows the image of its runner -",
            id="nobody knows its runner",
        ),
    ],
)
def test_what_became_of_a_job_is_known(job: JobRecord, fate: Fate, why: str) -> None:
    assert fate_of(job) == (fate, why)


def _two(**of_second: object) -> tuple[JobRecord, JobRecord]:
    second = replace(GOOD, name="job-02", runner="demo-b")
    return GOOD, replace(second, **of_second)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("jobs", "roll", "acts", "line", "trouble"),
    [
        pytest.param(
            _two(),
            ROLL,
            (Act("restarted the server"),),
            "demo: 2 jobs ok, 0 lost, 0 killed; roll max unavailable 2 of cap 2",
            "",
            id="all went well",
        ),
        pytest.param(
            _two(began=0, finished=0, conclusion=""),
            ROLL,
            (),
            "demo: 1 jobs ok, 1 lost, 0 killed; roll max unavailable 2 of cap 2",
            "job-02 is lost",
            id="a job is lost",
        ),
        pytest.param(
            (GOOD,),
            ROLL,
            (),
            "demo: 1 jobs ok, 1 lost, 0 killed; roll max unavailable 2 of cap 2",
            "1 of 2 jobs were never taken",
            id="a job was never taken",
        ),
        pytest.param(
            _two(finished=0),
            ROLL,
            (),
            "demo: 1 jobs ok, 0 lost, 1 killed; roll max unavailable 2 of cap 2",
            "job-02 is killed",
            id="a job is killed",
        ),
        pytest.param(
            _two(began=2, finished=2),
            ROLL,
            (),
            "demo: 1 jobs ok, 0 lost, 0 killed; roll max unavailable 2 of cap 2",
            "job-02 is wrong: it ran 2 times",
            id="a job ran twice",
        ),
        pytest.param(
            _two(runner="demo-a"),
            ROLL,
            (),
            "demo: 2 jobs ok, 0 lost, 0 killed; roll max unavailable 2 of cap 2",
            "runner demo-a had 2 jobs",
            id="a runner was used twice",
        ),
        pytest.param(
            _two(),
            RollRecord(unavailable_max=3, cap=2),
            (),
            "demo: 2 jobs ok, 0 lost, 0 killed; roll max unavailable 3 of cap 2",
            "the roll took 3 runners away at once, and its cap is 2",
            id="the roll went beyond its cap",
        ),
        pytest.param(
            _two(),
            ROLL,
            (Act("restarted the server", "the server is not back"),),
            "demo: 2 jobs ok, 0 lost, 0 killed; roll max unavailable 2 of cap 2",
            "restarted the server: the server is not back",
            id="a fault had no good end",
        ),
    ],
)
def test_the_demo_says_that_all_went_well_only_if_it_did(
    jobs: tuple[JobRecord, ...], roll: RollRecord, acts: tuple[Act, ...], line: str, trouble: str
) -> None:
    verdict = judge(2, jobs, roll, acts)
    assert verdict.line == line
    assert verdict.ok == (not trouble)
    assert any(said.startswith(trouble) for said in verdict.troubles) == bool(trouble)


def test_the_table_shows_when_each_job_got_how_far() -> None:
    waits = JobRecord(name="job-02", began=0, finished=0, times=Times(queued=ZERO))
    assert table([GOOD, waits], ZERO) == [
        "JOB  RUNNER  IMAGE    QUEUED  CLAIMED  DELIVERED  STARTED   ENDED  RESULT",
        " 01  demo-a  process   10.50    10.75      11.00    11.25  120.00  ok",
        " 02  -       -          0.00        -          -        -       -  lost",
    ]


# --- The roll ---------------------------------------------------------------------------------------------------------


def _life(*phases: str) -> list[tuple[str, Runner, bool]]:
    """Return the sights of one runner: ``a:warm``, ``a:warm:marked``, ``a:gone``."""
    return [_sight(phase) for phase in phases]


def _sight(said: str) -> tuple[str, Runner, bool]:
    uid, phase, *more = said.split(":")
    mark = Mark("new", ZERO) if "marked" in more else None
    at = Phase.ENDED if phase == "gone" else Phase(phase)
    template = "old" if uid in {"a", "b", "c", "old"} else "new"
    runner = Runner(
        name=uid, uid=uid, version="1", template=template, created_at=ZERO, phase=at, mark=mark
    )
    return uid, runner, phase == "gone"


@pytest.mark.parametrize(
    ("story", "most"),
    [
        pytest.param("a:warm b:warm c:warm", Most(), id="nothing happens"),
        pytest.param(
            "a:warm b:warm c:warm | a:warm:marked a:ended:marked a:gone:marked d:starting d:warm"
            " b:warm:marked b:ended:marked b:gone:marked e:starting e:warm",
            Most(by_roll=1, in_all=1),
            id="one leaves after the other's replacement is warm",
        ),
        pytest.param(
            "a:warm b:warm c:warm | a:warm:marked a:ended:marked d:starting b:warm:marked",
            Most(by_roll=2, in_all=2),
            id="a second one leaves while the first one's replacement starts",
        ),
        pytest.param(
            "a:warm b:warm c:warm | a:warm:marked b:warm:marked c:warm:marked",
            Most(by_roll=3, in_all=3),
            id="all are asked to leave at once",
        ),
        pytest.param(
            "a:busy b:busy c:warm | a:ended b:ended c:warm:marked d:starting e:starting",
            Most(by_roll=1, in_all=3),
            id="runners whose jobs ended are not the roll's doing",
        ),
        pytest.param(
            "a:busy b:warm c:warm | a:ended b:warm:marked b:ended:marked d:starting d:warm"
            " c:warm:marked",
            Most(by_roll=1, in_all=2),
            id="one of the new template fills a place that the roll made",
        ),
        pytest.param(
            "a:busy b:warm c:warm | a:ended b:warm:marked b:ended:marked old:starting old:warm"
            " c:warm:marked",
            Most(by_roll=2, in_all=2),
            id="one of the old template fills another place",
        ),
        pytest.param(
            "a:warm b:warm c:warm | a:warm:marked a:ended:marked old:starting old:warm"
            " b:warm:marked",
            Most(by_roll=1, in_all=1),
            id="one of the old template fills the only place that is free",
        ),
        pytest.param(
            "a:warm b:warm c:warm | a:warm:marked a:busy:marked a:ended:marked",
            Most(by_roll=1, in_all=1),
            id="one that got a job before it could leave does not leave for the roll",
        ),
        pytest.param(
            "a:warm b:warm c:warm | a:warm:marked a:ended:marked d:starting d:ended d:gone"
            " e:starting",
            Most(by_roll=1, in_all=1),
            id="a replacement that fails frees no second place",
        ),
        pytest.param(
            "a:warm b:warm c:warm | a:warm:marked a:ended:marked b:starting b:warm c:warm:marked",
            Most(by_roll=2, in_all=2),
            id="one that is warm again is nobody's replacement",
        ),
    ],
)
def test_what_a_roll_takes_away_is_told_from_what_jobs_do(story: str, most: Most) -> None:
    before, _, after = story.partition("|")
    sights = [
        Sight(version, runner, gone=gone)
        for version, (_, runner, gone) in enumerate(_life(*before.split(), *after.split()))
    ]
    since = len(before.split())
    assert most_unavailable(sights, since=since, wanted=3) == most
    assert most_unavailable(reversed(sights), since=since, wanted=3) == most


# --- The burst --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [JOBS_MIN, 7, 20, 99])
@pytest.mark.parametrize("runners", [RUNNERS_MIN, 5, 10, 30])
def test_every_job_is_in_one_wave_and_the_first_leaves_runners_to_roll(
    jobs: int, runners: int
) -> None:
    planned = waves(jobs, runners)
    assert len(planned) == 3
    assert all(planned)
    numbers = [job.number for wave in planned for job in wave]
    assert numbers == list(range(1, jobs + 1))
    assert runners - len(planned[0]) >= 2


def test_a_job_says_that_it_began_and_ended_and_prints_what_is_expected(tmp_path: Path) -> None:
    job, ledger = PlannedJob(3, 0), tmp_path / "it's a ledger"
    ledger.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "REMUDA_JOB_ID": "local-1"}
    for image in ("process", "second"):
        if image != "process":
            (home / "image").write_text(f"{image}\n")
        said = subprocess.run(  # noqa: S603 - our own script
            ["/bin/sh", "-c", script(job, str(ledger))],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout == output(job, image)
    assert (ledger / "job-03.began").read_text() == "local-1\nlocal-1\n"
    assert (ledger / "job-03.ended").read_text() == "local-1\nlocal-1\n"
    assert shlex.quote(str(ledger)) != str(ledger), "the folder is one that a shell would split"
