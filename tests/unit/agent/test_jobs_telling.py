"""How a local job goes, told to dispatch through its faults: all of the output, a stop in time, and the end once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
import structlog

from remuda.agent.decide.recorded import State, Verdict
from remuda.agent.decide.verdict import failed
from remuda.agent.following import PIECE_BYTES, STREAM_MAX_BYTES
from remuda.agent.mailbox import HostMailbox
from remuda.model.mailbox import LOG
from remuda.ports.desk import NotYou, ReportReply
from remuda.ports.kube import NotFound, Refused
from remuda.ports.local_jobs import LOG_MAX_BYTES
from tests.unit.agent.builders import DONE, NOON, UID, a_record
from tests.unit.agent.desks import (
    LOCAL,
    RUNNER,
    SECRET,
    Side,
    a_local_record,
    another,
    on_virtual_time,
    unreachable,
)
from tests.unit.control.fake_kube import broken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from remuda.agent.decide.recorded import VmRecord
    from remuda.agent.parts import ToldToStop
    from remuda.ports.desk import JobReport

RUNNING = a_local_record(State.DELIVERED, delivered_at=NOON)
OVER = a_local_record(State.EXITED, delivered_at=NOON)


@dataclass
class Book:
    """What dispatch keeps of one job, as real dispatch does."""

    output: bytes = b""
    exits: list[tuple[int, str]] = field(default_factory=list)
    stop: str = ""
    away: bool = False
    beats: int = 0

    async def take(self, report: JobReport) -> ReportReply:
        if self.away:
            raise unreachable()
        self.beats += report.started_at is not None
        if report.log:
            if report.log_offset > len(self.output):
                return ReportReply(stop=self.stop, log_offset=len(self.output))
            self.output += report.log[len(self.output) - report.log_offset :]
        if report.exit_code is not None:
            self.exits.append((report.exit_code, report.exit_reason))
            return ReportReply()
        return ReportReply(stop=self.stop)


class Scene:
    """A VM with a local job, and dispatch with a book about it."""

    def __init__(self, folder: Path) -> None:
        self.side = Side(folder)
        self.book = Book()
        self.side.desks.always = self.book.take
        self.mailbox = HostMailbox(folder / "box")
        self.mailbox.make()
        self.log = folder / "box" / LOG

    def prints(self, text: bytes) -> None:
        with self.log.open("ab") as file:
            file.write(text)

    def followed(
        self, record: VmRecord = RUNNING
    ) -> AbstractAsyncContextManager[asyncio.Task[ToldToStop]]:
        return _Followed(self, record)

    async def finish(self, verdict: Verdict = DONE) -> bool:
        return await self.side.jobs.finish(replace(OVER, verdict=verdict), RUNNER, self.mailbox)

    async def sleep(self, seconds: float) -> None:
        await self.side.clock.sleep(seconds)


class _Followed:
    def __init__(self, scene: Scene, record: VmRecord) -> None:
        self._scene, self._record = scene, record
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> asyncio.Task[ToldToStop]:
        await self._group.__aenter__()
        jobs = self._scene.side.jobs
        self._task = self._group.create_task(
            jobs.follow(self._record, RUNNER, self._scene.mailbox), name="follow"
        )
        return self._task

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await self._group.__aexit__(None, None, None)


def story(play: Callable[[Scene], Awaitable[None]]) -> Callable[[Path], None]:
    def test(tmp_path: Path) -> None:
        @on_virtual_time
        async def main() -> None:
            await play(Scene(tmp_path))

        main()

    test.__name__, test.__doc__ = play.__name__, play.__doc__
    return test


# --- while it runs ---


@story
async def test_output_arrives_while_the_job_runs(scene: Scene) -> None:
    async with scene.followed() as following:
        await scene.sleep(3)
        for line in (b"one\n", b"two\n", b"three\n"):
            scene.prints(line)
            await scene.sleep(2)
            assert scene.book.output.endswith(line)
        assert not following.done()
    assert scene.book.output == b"one\ntwo\nthree\n"
    assert {pod for pod, _ in scene.side.desks.told} == {RUNNER.pod}


@story
async def test_output_that_comes_as_a_new_file_each_time_flows_too(scene: Scene) -> None:
    async with scene.followed():
        text = b""
        for number in range(20):
            text += f"line {number}\n".encode()
            new = scene.log.with_name("new")
            new.write_bytes(text)
            new.rename(scene.log)
            await scene.sleep(1.5)
    assert scene.book.output == text


@story
async def test_a_silent_job_is_asked_after_now_and_then_and_stops_when_told(scene: Scene) -> None:
    async with scene.followed() as following:
        await scene.sleep(60)
        assert 60 / 6 - 2 <= scene.book.beats <= 60 / 5 + 1
        scene.book.stop = "the job was cancelled"
        async with asyncio.timeout(10):
            assert (await following).why == "the job was cancelled"


@story
async def test_a_job_that_prints_stops_when_told(scene: Scene) -> None:
    async with scene.followed() as following:
        scene.prints(b"x")
        await scene.sleep(3)
        scene.book.stop = "its time is over"
        scene.prints(b"y")
        async with asyncio.timeout(5):
            assert (await following).why == "its time is over"


@story
async def test_a_dispatch_that_is_away_or_restarts_misses_nothing(scene: Scene) -> None:
    async with scene.followed():
        for number in range(10):
            scene.book.away = number % 2 == 0
            scene.prints(f"line {number}\n".encode())
            await scene.sleep(20)
        scene.book.away = False
        await scene.sleep(120)
        assert scene.book.output == b"".join(b"line %d\n" % n for n in range(10))
        scene.book.output = b"line 0\n"  # it lost what it had taken
        scene.prints(b"the end\n")
        await scene.sleep(120)
    assert scene.book.output == b"".join(b"line %d\n" % n for n in range(10)) + b"the end\n"


@story
async def test_a_restarted_agent_begins_anew_and_nothing_is_kept_twice(scene: Scene) -> None:
    scene.prints(b"one\n")
    async with scene.followed():
        await scene.sleep(5)
    scene.side.restart()
    scene.prints(b"two\n")
    async with scene.followed():
        await scene.sleep(5)
    assert scene.book.output == b"one\ntwo\n"


@story
async def test_a_refused_token_is_replaced_for_as_long_as_it_takes(scene: Scene) -> None:
    scene.side.desks.reports.extend([NotYou(401, "expired")] * 5)
    scene.prints(b"hello")
    with structlog.testing.capture_logs() as logs:
        async with scene.followed() as following:
            await scene.sleep(120)
            assert not following.done()
    assert scene.book.output == b"hello"
    assert scene.side.desks.told_as[:6] == [f"{SECRET}-{n}" for n in range(1, 7)]
    assert SECRET not in repr(logs)


@story
async def test_more_output_than_dispatch_keeps_is_not_told(scene: Scene) -> None:
    async with scene.followed() as following:
        with scene.log.open("wb") as file:
            file.truncate(LOG_MAX_BYTES * 5)  # a hole
        await scene.sleep(60)
        assert LOG_MAX_BYTES < len(scene.book.output) <= STREAM_MAX_BYTES
        assert max(len(report.log) for _, report in scene.side.desks.told) <= PIECE_BYTES
        scene.book.stop = "enough"  # it still hears that
        async with asyncio.timeout(10):
            assert (await following).why == "enough"


@story
async def test_an_answer_that_makes_no_sense_becomes_no_storm(scene: Scene) -> None:
    async def asks_for_more(report: JobReport) -> ReportReply:
        return ReportReply(log_offset=report.log_offset + 1000)

    scene.side.desks.always = asks_for_more
    scene.prints(b"x")
    async with scene.followed():
        await scene.sleep(600)
    assert len(scene.side.desks.told) < 40


@story
async def test_a_mailbox_that_cannot_be_read_is_one_without_output(scene: Scene) -> None:
    scene.mailbox.remove()
    async with scene.followed() as following:
        await scene.sleep(30)
        assert not following.done()
    assert scene.book.beats > 3


@story
async def test_of_a_github_job_nothing_is_told(scene: Scene) -> None:
    scene.prints(b"secret things")
    record = replace(a_record(State.DELIVERED), job_id="github.com/1", job_kind="github")
    async with scene.followed(record) as following:
        await scene.sleep(24 * 3600)
        assert not following.done()
    over = replace(record, state=State.EXITED, verdict=DONE)
    assert await scene.side.jobs.finish(over, RUNNER, scene.mailbox)
    assert scene.side.desks.told == []
    assert scene.side.kube.asked == []


@story
async def test_one_whose_dispatch_is_away_holds_up_no_other(scene: Scene) -> None:
    async def only_others(report: JobReport) -> ReportReply:
        if scene.side.desks.told[-1][0] == "stuck":
            await scene.sleep(1e6)
        return await scene.book.take(report)

    scene.side.desks.always = only_others
    async with asyncio.TaskGroup() as group:
        stuck = group.create_task(
            scene.side.jobs.follow(RUNNING, another("stuck"), scene.mailbox), name="stuck"
        )
        await scene.sleep(1)
        scene.prints(b"hello")
        async with scene.followed():
            await scene.sleep(3)
        assert scene.book.output == b"hello"
        assert not stuck.done()
        stuck.cancel()


# --- its end ---


@story
async def test_the_end_is_told_with_the_rest_of_the_output(scene: Scene) -> None:
    scene.prints(b"one\n")
    async with scene.followed():
        await scene.sleep(5)
    scene.prints(b"two\n" * PIECE_BYTES)
    assert await scene.finish()
    assert scene.book.output == b"one\n" + b"two\n" * PIECE_BYTES
    assert scene.book.exits == [(0, "")]
    assert await scene.finish()  # the keeper may repeat it
    assert scene.book.exits == [(0, "")] * 2
    told = [report for _, report in scene.side.desks.told if report.exit_code is not None]
    assert {report.finished_at for report in told} == {DONE.finished_at}


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        pytest.param(failed("VmCrashed", "Its VM crashed", NOON), (1, "Its VM crashed"), id="ours"),
        pytest.param(
            Verdict(succeeded=False, exit_code=7, reason="Error", message="", finished_at=NOON),
            (7, "Error"),
            id="the guest's",
        ),
        pytest.param(failed("Deleted", "x" * 1000, NOON), (1, "x" * 1000), id="long"),
    ],
)
def test_the_verdict_is_the_exit(tmp_path: Path, verdict: Verdict, told: tuple[int, str]) -> None:
    @on_virtual_time
    async def main() -> None:
        scene = Scene(tmp_path)
        assert await scene.finish(verdict)
        assert scene.book.exits == [told]
        reports = [report for _, report in scene.side.desks.told if report.exit_code is not None]
        assert [report.exit_reported for report in reports] == [verdict.reason == "Error"]

    main()


@story
async def test_an_end_that_nobody_hears_is_bounded_and_can_be_told_later(scene: Scene) -> None:
    scene.prints(b"hello")
    scene.book.away = True
    began = scene.side.clock.monotonic()
    assert not await scene.finish()
    assert scene.side.clock.monotonic() - began < 30

    async def hang(_: JobReport) -> ReportReply:
        await scene.sleep(1e6)
        return ReportReply()

    scene.side.desks.reports.append(hang)
    began = scene.side.clock.monotonic()
    assert not await scene.finish()
    assert scene.side.clock.monotonic() - began < 30
    scene.book.away = False
    assert await scene.finish()
    assert (scene.book.output, scene.book.exits) == (b"hello", [(0, "")])


@story
async def test_a_dispatch_that_lost_output_gets_it_again_with_the_end(scene: Scene) -> None:
    scene.prints(b"0123456789")
    async with scene.followed():
        await scene.sleep(5)
    scene.book.output = b"0123"
    scene.prints(b"abc")
    assert await scene.finish()
    assert scene.book.output == b"0123456789abc"
    assert scene.book.exits == [(0, "")]


@story
async def test_an_end_is_told_without_output_to_one_that_always_wants_another_piece(
    scene: Scene,
) -> None:
    async def never_content(report: JobReport) -> ReportReply:
        if report.log:
            return ReportReply(log_offset=0)
        return await scene.book.take(report)

    scene.side.desks.always = never_content
    scene.prints(b"hello")
    assert await scene.finish()
    assert scene.book.exits == [(0, "")]


@story
async def test_an_end_is_told_when_the_mailbox_is_gone(scene: Scene) -> None:
    scene.mailbox.remove()
    scene.side.restart()
    assert await scene.finish()
    assert scene.book.exits == [(0, "")]


@story
async def test_an_end_that_nobody_will_ever_take_from_us_is_given_up_loudly(scene: Scene) -> None:
    """Its Pod is gone, so there is no token: dispatch hears of the end from whoever saw the Pod end."""
    scene.side.kube.wrong = broken(Refused)
    tries = 0
    with structlog.testing.capture_logs() as logs:
        while not await scene.finish():
            tries += 1
            await scene.sleep(5)
    assert tries >= 3
    assert scene.side.clock.monotonic() < 300
    assert logs[-1]["log_level"] == "error"


@story
async def test_nobody_waits_to_tell_an_end_for_a_runner_whose_account_is_gone(scene: Scene) -> None:
    """It goes once the Pod has ended. An agent that begins again then has no token, and may have told it before."""
    scene.side.restart()
    scene.side.kube.wrong = broken(NotFound)
    began = scene.side.clock.monotonic()
    assert await scene.finish()
    assert scene.side.clock.monotonic() - began < 1


@story
async def test_a_job_that_was_never_delivered_is_left_to_dispatch(scene: Scene) -> None:
    """It may not have begun: who says that it ended would begin it."""
    scene.side.held.keep(UID, LOCAL)
    record = replace(a_record(State.EXITED), verdict=failed("VmCrashed", "It crashed", NOON))
    assert await scene.side.jobs.finish(record, RUNNER, scene.mailbox)
    assert scene.side.desks.told == []
