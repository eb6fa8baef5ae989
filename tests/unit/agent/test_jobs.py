"""A VM's one job, asked for at dispatch: none is lost, none is begun twice, and what is refused is said loudly."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import structlog

from remuda.agent.held_jobs import HeldJobFailed
from remuda.agent.parts import Denied
from remuda.ports.desk import (
    AskLater,
    GoHome,
    HandedBefore,
    NoJobYet,
    NotYou,
    ReportReply,
)
from remuda.ports.kube import Refused, Unavailable
from tests.unit.agent.builders import UID
from tests.unit.agent.desks import (
    GITHUB,
    HELD_OPEN_S,
    LOCAL,
    RUNNER,
    SECRET,
    Side,
    another,
    on_virtual_time,
    unreachable,
)
from tests.unit.control.fake_kube import broken

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.ports.desk import JobReport

FILE = f"{UID}.json"


@on_virtual_time
async def test_a_github_job_is_handed_on_and_nothing_is_kept(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.append(GITHUB)
    assert await side.jobs.next(RUNNER) == GITHUB
    assert side.desks.told == []
    assert side.files() == []


@on_virtual_time
async def test_a_local_job_is_on_disk_before_dispatch_lets_it_begin(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.append(LOCAL)
    seen: list[object] = []

    async def begins(report: JobReport) -> ReportReply:
        assert report.started_at == side.clock.now()
        seen.append(side.held.get(UID))
        return ReportReply()

    side.desks.reports.append(begins)
    assert await side.jobs.next(RUNNER) == LOCAL
    assert seen == [LOCAL]
    assert side.files() == [FILE]
    for _ in range(2):
        await side.jobs.delivered(RUNNER)
    assert side.files() == []


@on_virtual_time
async def test_a_runner_waits_as_long_as_it_takes_and_asks_no_more_often_than_needed(
    tmp_path: Path,
) -> None:
    side = Side(tmp_path)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(side.jobs.next(RUNNER))
        await side.clock.sleep(24 * 3600)
        side.desks.polls.append(GITHUB)
        assert await waiting == GITHUB
    assert 24 * 3600 / 30 < len(side.desks.polled) <= 24 * 3600 / HELD_OPEN_S + 2
    assert 24 < len(side.kube.asked) < 24 * 3  # hours


@on_virtual_time
async def test_polls_that_are_answered_at_once_become_no_storm(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.extend([NoJobYet()] * 20)
    side.desks.polls.append(GITHUB)
    await side.jobs.next(RUNNER)
    assert side.clock.monotonic() > 15


@on_virtual_time
async def test_a_dispatch_in_trouble_is_asked_less_and_less_often(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.extend([unreachable()] * 10)
    side.desks.polls.extend([AskLater(50.0, "busy"), AskLater(None, "busy")])
    side.desks.polls.append(GITHUB)
    assert await side.jobs.next(RUNNER) == GITHUB
    at = side.desks.polled_at
    apart = [b - a for a, b in pairwise(at)]
    assert apart[0] < 1
    assert all(wait >= 25 for wait in apart[7:])
    assert max(apart) <= 61


@on_virtual_time
async def test_it_is_sent_home(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.extend([NoJobYet(), GoHome("drained")])
    assert await side.jobs.next(RUNNER) == GoHome("drained")


# --- who we are ---


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_replaced_once_then_the_pod_fails_loudly(
    tmp_path: Path, status: int
) -> None:
    @on_virtual_time
    async def story() -> None:
        side = Side(tmp_path)
        no = NotYou(status, "the token is not for dispatch")
        side.desks.polls.extend([no, GITHUB])
        assert await side.jobs.next(RUNNER) == GITHUB
        assert side.desks.polled == [f"{SECRET}-1", f"{SECRET}-2"]

        side.desks.polls.extend([no, unreachable(), no])
        with structlog.testing.capture_logs() as logs:
            denied = await side.jobs.next(RUNNER)
        assert isinstance(denied, Denied)
        assert denied.reason == "TokenRefused"
        assert f"{status} (the token is not for dispatch)" in denied.why
        assert [line["log_level"] for line in logs][-1] == "error"
        assert SECRET not in f"{denied!r} {logs!r}"

    story()


@on_virtual_time
async def test_refusals_with_answers_between_them_are_each_a_tokens_fault(tmp_path: Path) -> None:
    side = Side(tmp_path)
    for _ in range(5):
        side.desks.polls.extend([NotYou(401, "expired"), NoJobYet()])
    side.desks.polls.append(GITHUB)
    assert await side.jobs.next(RUNNER) == GITHUB


@on_virtual_time
async def test_a_pod_that_gets_no_token_for_long_fails(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.kube.wrong = broken(Refused)
    denied = await side.jobs.next(RUNNER)
    assert isinstance(denied, Denied)
    assert denied.reason == "NoToken"
    assert "the test wants it so" in denied.why
    assert 100 < side.clock.monotonic() < 300
    assert len(side.kube.asked) < 20


@on_virtual_time
async def test_an_api_server_that_refuses_for_a_while_or_is_away_for_long_fails_nobody(
    tmp_path: Path,
) -> None:
    side = Side(tmp_path)
    side.desks.polls.append(GITHUB)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(side.jobs.next(RUNNER))
        side.kube.wrong = broken(Refused)
        await side.clock.sleep(60)
        side.kube.wrong = broken(Unavailable)
        await side.clock.sleep(6 * 3600)
        assert not waiting.done()
        side.kube.wrong = None
        assert await waiting == GITHUB


@on_virtual_time
async def test_refusals_count_only_without_anything_else_between_them(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.append(GITHUB)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(side.jobs.next(RUNNER))
        for sort in (Refused, Unavailable, Refused):
            side.kube.wrong = broken(sort)
            await side.clock.sleep(115)
        assert not waiting.done()
        side.kube.wrong = None
        assert await waiting == GITHUB


@on_virtual_time
async def test_a_refusal_of_long_ago_does_not_count(tmp_path: Path) -> None:
    side = Side(tmp_path)
    no = NotYou(401, "expired")
    side.desks.polls.append(no)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(side.jobs.next(RUNNER))
        await side.clock.sleep(600)
        side.desks.polls.extend([no, GITHUB])
        side.kube.wrong = broken(Refused)
        await side.clock.sleep(60)
        assert not waiting.done()
        side.kube.wrong = None
        assert await waiting == GITHUB


@on_virtual_time
async def test_one_whose_dispatch_hangs_holds_up_no_other(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.hangs.add(f"{SECRET}-1")
    async with asyncio.TaskGroup() as group:
        stuck = group.create_task(side.jobs.next(another("stuck")))
        await side.clock.sleep(5)
        side.desks.polls.append(GITHUB)
        began = side.clock.monotonic()
        assert await side.jobs.next(RUNNER) == GITHUB
        assert side.clock.monotonic() - began < 1
        stuck.cancel()


# --- beginning ---


@on_virtual_time
async def test_an_answer_that_was_lost_is_asked_for_again(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.append(LOCAL)
    side.desks.reports.extend([unreachable(), NotYou(401, "expired"), unreachable()])
    assert await side.jobs.next(RUNNER) == LOCAL
    assert len(side.desks.told) == 4
    assert len({report.started_at for _, report in side.desks.told}) == 1
    assert side.desks.told_as == [f"{SECRET}-{n}" for n in (1, 1, 2, 2)]
    assert len(side.desks.polled) == 1


@on_virtual_time
async def test_a_job_that_cannot_be_begun_is_asked_for_again_and_begun_in_the_end(
    tmp_path: Path,
) -> None:
    """Dispatch is away for minutes: whether it let us begin, it alone knows."""
    side = Side(tmp_path)
    side.desks.polls.append(LOCAL)
    side.desks.polls.extend([HandedBefore("it runs")] * 20)
    side.desks.reports.extend([unreachable()] * 20)
    assert await side.jobs.next(RUNNER) == LOCAL
    assert len(side.desks.polled) > 1
    assert side.files() == [FILE]


@pytest.mark.parametrize("then", [GoHome("too late"), GITHUB], ids=["sent home", "another job"])
def test_a_job_that_is_not_ours_any_more_when_dispatch_is_back_is_dropped(
    tmp_path: Path, then: GoHome
) -> None:
    @on_virtual_time
    async def story() -> None:
        side = Side(tmp_path)
        side.desks.polls.extend([LOCAL, then])
        side.desks.reports.extend([unreachable()] * 20)
        assert await side.jobs.next(RUNNER) == then
        assert side.files() == []

    story()


@on_virtual_time
async def test_a_refused_token_at_the_beginning_fails_the_pod_and_keeps_the_job(
    tmp_path: Path,
) -> None:
    side = Side(tmp_path)
    side.desks.polls.append(LOCAL)
    side.desks.reports.extend([NotYou(401, "expired")] * 2)
    denied = await side.jobs.next(RUNNER)
    assert isinstance(denied, Denied)
    assert denied.reason == "TokenRefused"
    assert side.files() == [FILE]


@pytest.mark.parametrize(
    ("then", "ends"),
    [
        pytest.param(GoHome("it has had its one job"), "GoHome", id="sent home"),
        pytest.param(GITHUB, "HandedJob", id="another job"),
        pytest.param(HandedBefore("it counts as running"), "Denied", id="nothing else"),
    ],
)
def test_a_job_that_must_not_begin_is_dropped_and_dispatch_says_what_then(
    tmp_path: Path, then: GoHome, ends: str
) -> None:
    @on_virtual_time
    async def story() -> None:
        side = Side(tmp_path)
        side.desks.polls.extend([LOCAL, then])
        side.desks.reports.append(ReportReply(stop="the job was cancelled"))
        answer = await side.jobs.next(RUNNER)
        assert type(answer).__name__ == ends
        assert side.files() == []
        if isinstance(answer, Denied):
            assert answer.reason == "JobLost"
            assert "the job was cancelled" in answer.why

    story()


@on_virtual_time
async def test_a_job_that_is_handed_over_and_stopped_for_ever_becomes_no_storm(
    tmp_path: Path,
) -> None:
    side = Side(tmp_path)
    side.desks.polls.extend([LOCAL] * 20)
    side.desks.polls.append(GoHome("enough"))
    side.desks.reports.extend([ReportReply(stop="no")] * 20)
    assert await side.jobs.next(RUNNER) == GoHome("enough")
    assert side.clock.monotonic() > 300


# --- restarts ---


@pytest.mark.parametrize("hangs", [True, False], ids=["unanswered", "begun"])
def test_a_kept_job_is_begun_again_after_a_restart(tmp_path: Path, *, hangs: bool) -> None:
    @on_virtual_time
    async def story() -> None:
        side = Side(tmp_path)
        side.desks.polls.append(LOCAL)

        async def hang(_: JobReport) -> ReportReply:
            await side.clock.sleep(1e6)
            return ReportReply()

        if hangs:
            side.desks.reports.append(hang)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(side.jobs.next(RUNNER))
            await side.clock.sleep(30)
            asking.cancel()
        side.restart()
        assert await side.jobs.next(RUNNER) == LOCAL
        assert len(side.desks.polled) == 1
        assert len(side.desks.told) == 2
        await side.jobs.delivered(RUNNER)
        assert side.files() == []

    story()


@on_virtual_time
async def test_a_cancellation_at_any_moment_loses_no_job(tmp_path: Path) -> None:
    """Every tenth of a second of the way from the token to the reply."""

    async def cancelled_after(seconds: float, folder: Path) -> None:
        side = Side(folder)
        side.desks.polls.append(LOCAL)

        async def slow(_: JobReport) -> ReportReply:
            await side.clock.sleep(0.5)
            begun.append(side.held.get(UID) == LOCAL)
            await side.clock.sleep(0.5)
            return ReportReply()

        begun: list[bool] = []
        side.desks.always = slow
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(side.jobs.next(RUNNER))
            await side.clock.sleep(seconds)
            asking.cancel()
        handed = not side.desks.polls
        side.restart()
        if not handed:
            side.desks.polls.clear()
            side.desks.polls.append(LOCAL)
        assert await side.jobs.next(RUNNER) == LOCAL
        assert all(begun)

    for tenth in range(15):
        await cancelled_after(tenth / 10 + 0.05, tmp_path / str(tenth))


@on_virtual_time
async def test_a_job_that_is_nowhere_is_lost_and_said_to_be(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.append(HandedBefore("job local-1 was handed over and runs"))
    denied = await side.jobs.next(RUNNER)
    assert isinstance(denied, Denied)
    assert denied.reason == "JobLost"
    assert "local-1 was handed over" in denied.why


@on_virtual_time
async def test_a_kept_job_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    side = Side(tmp_path)
    (tmp_path / "held" / FILE).write_text(f"half of {SECRET}")
    side.desks.polls.append(HandedBefore("it runs"))
    with structlog.testing.capture_logs() as logs:
        denied = await side.jobs.next(RUNNER)
    assert isinstance(denied, Denied)
    assert denied.reason == "JobLost"
    assert str(tmp_path / "held" / FILE) in denied.why
    assert SECRET not in f"{denied!r} {logs!r}"
    side.jobs.forget(UID)
    assert side.files() == []


@on_virtual_time
async def test_a_kept_job_is_not_another_pods(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.held.keep(UID, LOCAL)
    side.desks.polls.append(GITHUB)
    assert await side.jobs.next(another("other")) == GITHUB
    assert side.files() == [FILE]


@on_virtual_time
async def test_a_job_that_cannot_be_kept_is_not_begun(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.extend([LOCAL, LOCAL, LOCAL])
    (tmp_path / "held").rename(tmp_path / "away")
    async with asyncio.TaskGroup() as group:
        (tmp_path / "held").touch()  # no folder
        asking = group.create_task(side.jobs.next(RUNNER))
        await side.clock.sleep(2)
        assert side.desks.told == []
        (tmp_path / "held").unlink()
        (tmp_path / "away").rename(tmp_path / "held")
        assert await asking == LOCAL
    assert len(side.desks.told) == 1


@on_virtual_time
async def test_what_is_forgotten_is_gone_from_memory_and_disk(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.extend([LOCAL, GITHUB])
    await side.jobs.next(RUNNER)
    side.held.keep("uid-of-nobody", LOCAL)
    await side.jobs.forget_all_but([UID])
    assert side.files() == [FILE]
    for _ in range(2):
        side.jobs.forget(UID)
    assert side.files() == []
    await side.jobs.next(RUNNER)
    assert side.desks.polled[-1] == f"{SECRET}-2"


@on_virtual_time
async def test_a_disk_that_forgets_nothing_stops_nobody(tmp_path: Path) -> None:
    side = Side(tmp_path)
    (tmp_path / "held").rmdir()
    with pytest.raises(HeldJobFailed):
        side.held.drop(UID)
    await side.jobs.delivered(RUNNER)
    await side.jobs.forget_all_but([])
    side.jobs.forget(UID)


@on_virtual_time
async def test_no_secret_shows_in_what_is_logged_or_kept_in_mind(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.desks.polls.extend([unreachable(), NotYou(401, "no"), AskLater(1.0, "busy"), LOCAL])
    side.desks.reports.extend([unreachable(), ReportReply(stop="no")])
    side.desks.polls.append(replace(LOCAL, job_id="local-2"))
    with structlog.testing.capture_logs() as logs:
        job = await side.jobs.next(RUNNER)
    assert len(logs) >= 5
    mind = {name: part for name, part in vars(side.jobs).items() if part is not side.desks}
    assert SECRET not in f"{logs!r} {job!r} {mind!r}"
