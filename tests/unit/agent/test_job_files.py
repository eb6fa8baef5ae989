"""Files of a local job on the agent's side: none begins without its own, and what comes back costs no job."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from remuda.agent.collecting import CANCELLED, CUT_SHORT, TOO_LATE, TOO_OLD, VM_ENDED
from remuda.agent.decide.recorded import State
from remuda.agent.jobs import JobTimes
from remuda.agent.mailbox import HostMailbox
from remuda.agent.parts import Denied
from remuda.kube.core import EVENT
from remuda.kube.names import JOB_DELIVERED
from remuda.model.job_files import FILES_MAX_BYTES
from remuda.model.mailbox import (
    ENDED,
    EXIT,
    FILES_IN,
    FILES_NOTE,
    FILES_OUT,
    FILES_TAKEN,
    READY,
    TAKES_FILES,
)
from remuda.ports.desk import FilesRefused, GoHome, HandedJob, NotYou, ReportReply, UploadRef
from remuda.ports.kube import Query
from tests.unit.agent.barn import Barn, scenario
from tests.unit.agent.builders import UID
from tests.unit.agent.desks import (
    LOCAL,
    RUNNER,
    Side,
    a_local_record,
    on_virtual_time,
    unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.ports.desk import JobReport

TEXT = b"an archive of some length"
WITH_FILES = replace(LOCAL, upload=UploadRef(len(TEXT), sha256(TEXT).hexdigest()))
JOB_FILE, FILES_FILE = f"{UID}.json", f"{UID}.files"


def a_side(folder: Path, *polls: HandedJob) -> Side:
    side = Side(folder)
    side.desks.upload = TEXT
    side.desks.polls.extend(polls or (WITH_FILES,))
    return side


# --- To the runner ---------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_files_are_on_disk_whole_before_dispatch_lets_the_job_begin(tmp_path: Path) -> None:
    side = a_side(tmp_path)
    seen: list[list[str]] = []

    async def begins(_: JobReport) -> ReportReply:
        seen.append(side.files())
        return ReportReply()

    side.desks.reports.append(begins)
    job = await side.jobs.next(RUNNER)

    assert isinstance(job, HandedJob)
    assert job.files is not None
    assert job.files.read_bytes() == TEXT
    assert seen == [[FILES_FILE, JOB_FILE]]
    await side.jobs.delivered(RUNNER)
    assert side.files() == []


@on_virtual_time
async def test_after_a_restart_job_and_files_are_as_they_were(tmp_path: Path) -> None:
    side = a_side(tmp_path, replace(WITH_FILES, wants_files=True))
    first = await side.jobs.next(RUNNER)
    side.restart()
    side.desks.upload = b"must not be asked for again"

    assert await side.jobs.next(RUNNER) == first
    assert side.desks.polls == type(side.desks.polls)()
    await side.jobs.forget_all_but([])
    assert side.files() == []


@on_virtual_time
async def test_a_dispatch_that_fails_for_a_while_costs_time_only(tmp_path: Path) -> None:
    side = a_side(tmp_path)
    side.desks.fetches.extend((unreachable(), TEXT[:4], unreachable(), NotYou(401, "old")))

    job = await side.jobs.next(RUNNER)

    assert isinstance(job, HandedJob)
    assert job.files is not None
    assert job.files.read_bytes() == TEXT


@on_virtual_time
async def test_files_that_are_not_given_keep_the_job_from_its_beginning(tmp_path: Path) -> None:
    side = a_side(tmp_path)
    side.desks.fetches.append(FilesRefused("the job is over"))
    side.desks.polls.append(GoHome("enough"))

    assert await side.jobs.next(RUNNER) == GoHome("enough")
    assert side.desks.told == [], "it was never asked to begin"
    assert side.files() == []


@pytest.mark.parametrize("left", [b"another job's archive...", TEXT[::-1], TEXT[:-1]])
def test_files_of_another_job_that_lie_there_are_never_delivered(
    left: bytes, tmp_path: Path
) -> None:
    @on_virtual_time
    async def play() -> None:
        side = a_side(tmp_path)
        (tmp_path / "held" / FILES_FILE).write_bytes(left)

        job = await side.jobs.next(RUNNER)

        assert isinstance(job, HandedJob)
        assert job.files is not None
        assert job.files.read_bytes() == TEXT

    play()


@pytest.mark.parametrize("stored", [b"", TEXT[:-1], TEXT + b"!", b"?" * len(TEXT)])
def test_files_that_are_not_what_was_sent_end_the_job_loudly(stored: bytes, tmp_path: Path) -> None:
    @on_virtual_time
    async def play() -> None:
        side = a_side(tmp_path)
        side.desks.upload = stored

        answer = await side.jobs.next(RUNNER)

        assert isinstance(answer, Denied)
        assert answer.reason == "FilesSpoilt"
        begin, end = (report for _, report in side.desks.told)
        assert begin.started_at is not None
        assert (end.exit_code, end.exit_reported) == (1, False)
        assert "as they were sent" in end.exit_reason
        assert side.files() == []

    play()


@on_virtual_time
async def test_a_job_that_may_not_begin_leaves_no_files(tmp_path: Path) -> None:
    side = a_side(tmp_path)
    side.desks.reports.append(ReportReply(stop="it was cancelled"))
    side.desks.polls.append(GoHome("enough"))

    assert await side.jobs.next(RUNNER) == GoHome("enough")
    assert side.files() == []


# --- Back from the runner --------------------------------------------------------------------------------------------

RECORD = a_local_record(State.DELIVERED, job_files=True)


class Left(Side):
    """A runner whose job left something."""

    def __init__(self, folder: Path, content: bytes | None = TEXT) -> None:
        super().__init__(folder, JobTimes())
        self.place = folder / "box"
        self.mailbox = HostMailbox(self.place)
        self.mailbox.make()
        if content is not None:
            (self.place / FILES_OUT).write_bytes(content)

    async def collected(self) -> str:
        return await self.jobs.collect(RECORD, RUNNER, self.mailbox)


@on_virtual_time
async def test_what_a_job_left_is_sent_once(tmp_path: Path) -> None:
    left = Left(tmp_path, os.urandom(2_500_000))
    left.desks.sends.extend((unreachable(), NotYou(401, "old")))
    for _ in range(2):
        assert await left.collected() == ""
        assert bytes(left.desks.sent) == (left.place / FILES_OUT).read_bytes()


@on_virtual_time
async def test_of_a_job_that_nobody_wants_files_of_none_are_sent(tmp_path: Path) -> None:
    left = Left(tmp_path)
    record = replace(RECORD, job_files=False)
    assert await left.jobs.collect(record, RUNNER, left.mailbox) == ""
    assert left.desks.sent == b""


def _grown(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(FILES_MAX_BYTES + 1)


@pytest.mark.parametrize(
    ("leave", "note"),
    [
        pytest.param(lambda _: None, "left none", id="nothing"),
        pytest.param(lambda file: file.touch(), "left none", id="nothing in it"),
        pytest.param(lambda file: file.symlink_to("/etc/passwd"), "left none", id="a link"),
        pytest.param(os.mkfifo, "left none", id="a pipe"),
        pytest.param(lambda file: file.mkdir(), "left none", id="a folder"),
        pytest.param(_grown, "more than", id="too much"),
    ],
)
def test_whatever_a_guest_leaves_only_a_file_of_bounded_size_is_sent(
    leave: Callable[[Path], None], note: str, tmp_path: Path
) -> None:
    @on_virtual_time
    async def play() -> None:
        left = Left(tmp_path, None)
        leave(left.place / FILES_OUT)
        assert note in await left.collected()
        assert left.desks.sent == b""

    play()


@pytest.mark.parametrize(
    ("answers", "note"),
    [
        pytest.param([FilesRefused("not wanted")], "not wanted", id="they are refused"),
        pytest.param([unreachable()] * 1000, "nobody answers", id="nobody answers"),
        pytest.param([NotYou(403, "no runner")] * 1000, "no runner", id="nobody knows us"),
        pytest.param([0] * 1000, "did not answer", id="nothing is ever kept"),
    ],
)
def test_a_dispatch_that_does_not_take_them_costs_a_note_and_bounded_time(
    answers: list[int | FilesRefused | NotYou | Exception], note: str, tmp_path: Path
) -> None:
    @on_virtual_time
    async def play() -> None:
        left = Left(tmp_path)
        left.desks.sends.extend(answers)
        began = left.clock.monotonic()
        assert note in await left.collected()
        assert left.clock.monotonic() - began < 200, "a VM's place is not held for ever"
        assert left.desks.sent == b""

    play()


# --- In the life of a Pod --------------------------------------------------------------------------------------------


def a_job_with_files(barn: Barn) -> HandedJob:
    file = barn.host.folder / "given"
    file.write_bytes(TEXT)
    document = b'{"job_id": "local-1", "script": "true"}'
    return replace(WITH_FILES, document=document, files=file, wants_files=True)


@scenario()
async def test_files_are_there_with_the_job_and_what_it_left_is_collected(barn: Barn) -> None:
    uid = await barn.add_pod()
    barn.host.guests.knows, barn.host.guests.leaves = TAKES_FILES, b"left"
    barn.host.dispatch.queue.put_nowait(a_job_with_files(barn))
    barn.start()
    await barn.until_phase("Succeeded")

    assert barn.guest(uid).files == TEXT
    assert barn.host.dispatch.ended["local-1"].files_note == ""


@scenario()
async def test_what_a_job_left_while_no_agent_was_there_is_collected_by_the_next(
    barn: Barn,
) -> None:
    await barn.add_pod()
    barn.host.guests.knows, barn.host.guests.leaves = TAKES_FILES, b"left"
    barn.host.dispatch.queue.put_nowait(a_job_with_files(barn))
    barn.start()
    await barn.until_condition(JOB_DELIVERED)
    await barn.stop()
    await barn.later(120)  # the job ends, and its VM with it
    assert "local-1" not in barn.host.dispatch.ended
    barn.start()
    await barn.until_phase("Succeeded")

    assert barn.host.dispatch.ended["local-1"].files_note == ""


@scenario()
async def test_a_job_that_left_nothing_ends_as_it_did_with_a_note(barn: Barn) -> None:
    await barn.add_pod()
    barn.host.guests.knows, barn.host.guests.code = TAKES_FILES, 7
    barn.host.dispatch.queue.put_nowait(a_job_with_files(barn))
    barn.start()
    await barn.until_phase("Failed")

    end = barn.host.dispatch.ended["local-1"]
    assert (end.exit_code, end.reason, end.files_note) == (7, "Error", "there are none")
    assert "FilesNotCollected" in await barn.reasons()


@scenario()
async def test_a_job_that_is_stopped_says_that_its_files_were_not_packed(barn: Barn) -> None:
    await barn.add_pod()
    barn.host.guests.knows = TAKES_FILES
    barn.host.dispatch.queue.put_nowait(a_job_with_files(barn))
    barn.start()
    await barn.until_condition(JOB_DELIVERED)
    barn.host.dispatch.stop.set_result("it was cancelled")
    await barn.until_phase("Failed")

    assert barn.host.dispatch.ended["local-1"].files_note == CUT_SHORT


# --- While its files are packed --------------------------------------------------------------------------------------


async def packing(barn: Barn, **more: object) -> None:
    """Have a short job, and its guest pack what it left."""
    await barn.add_pod()
    job = a_job_with_files(barn)
    document = json.dumps({"job_id": "local-1", "script": "true", **more}).encode()
    barn.host.guests.knows, barn.host.guests.leaves = TAKES_FILES, b"left"
    barn.host.guests.code, barn.host.guests.job_s = 7, 2.0
    barn.host.dispatch.queue.put_nowait(replace(job, document=document))
    barn.start()
    await barn.until_condition(JOB_DELIVERED)


def end_of(barn: Barn) -> tuple[int, str, str]:
    end = barn.host.dispatch.ended["local-1"]
    return end.exit_code, end.reason, end.files_note


@scenario()
async def test_a_job_that_ended_is_not_too_late_because_its_files_are_packed_after_its_deadline(
    barn: Barn,
) -> None:
    barn.host.guests.packs_s = 30.0
    deadline = barn.host.clock.now() + timedelta(seconds=20)
    await packing(barn, deadline=deadline.isoformat())
    await barn.later(20)
    barn.host.dispatch.overdue = True
    barn.host.dispatch.stop.set_result("that time is over")  # as dispatch says then, too
    await barn.until_phase("Failed")

    assert end_of(barn) == (7, "Error", "")


@scenario()
async def test_a_clock_that_is_behind_dispatchs_makes_no_cancellation_of_a_deadline(
    barn: Barn,
) -> None:
    barn.host.guests.packs_s = 30.0
    deadline = barn.host.clock.now() + timedelta(seconds=60)
    await packing(barn, deadline=deadline.isoformat())
    await barn.later(10)
    barn.host.dispatch.overdue = True
    barn.host.dispatch.stop.set_result("that time is over")
    await barn.until_phase("Failed")

    assert end_of(barn) == (7, "Error", "")


@scenario()
async def test_who_cancels_after_the_deadline_while_files_are_packed_does_not_wait_for_them(
    barn: Barn,
) -> None:
    barn.host.guests.packs_s = 1e9
    await packing(barn)
    barn.host.dispatch.overdue = True
    await barn.later(10)
    barn.host.dispatch.stop.set_result("that time is over")
    await barn.later(20)
    assert "local-1" not in barn.host.dispatch.ended, "it may pack"
    began = barn.host.clock.monotonic()
    barn.host.dispatch.overdue = False  # and dispatch says that it was cancelled
    await barn.until_phase("Failed")

    assert end_of(barn) == (7, "Error", CANCELLED)
    assert barn.host.clock.monotonic() - began < 60


@scenario(packed_within_s=20.0)
async def test_packing_that_never_ends_costs_the_files_alone(barn: Barn) -> None:
    barn.host.guests.packs_s = 1e9
    await packing(barn)
    await barn.later(15)
    assert "local-1" not in barn.host.dispatch.ended, "it may take its time"
    await barn.until_phase("Failed")

    assert end_of(barn) == (7, "Error", TOO_LATE)
    assert "FilesNotCollected" in await barn.reasons()


@scenario()
async def test_a_guest_that_dies_while_it_packs_has_said_how_its_job_ended(barn: Barn) -> None:
    barn.host.guests.packs_s, barn.host.guests.dies_packing = 1e9, True
    await packing(barn)
    await barn.until_phase("Failed")

    assert end_of(barn) == (7, "Error", VM_ENDED)


@scenario()
async def test_of_an_archive_that_came_nevertheless_some_may_be_missing(barn: Barn) -> None:
    barn.host.guests.packs_s, barn.host.guests.dies_packing = 1e9, True
    barn.host.guests.leaves_early = True
    await packing(barn)
    await barn.until_phase("Failed")

    assert end_of(barn) == (7, "Error", f"some may be missing: {VM_ENDED}")
    events = (await barn.kube.list(EVENT, Query())).items
    (said,) = [event.message for event in events if event.reason == "FilesNotCollected"]
    assert said.startswith("Of the files that were to come back")


@scenario()
async def test_who_cancels_while_files_are_packed_gets_the_exit_code_at_once(barn: Barn) -> None:
    barn.host.guests.packs_s = 1e9
    await packing(barn)
    await barn.later(10)
    barn.host.dispatch.stop.set_result("it was cancelled")
    await barn.until_phase("Failed")

    assert end_of(barn) == (7, "Error", CANCELLED)


@scenario()
async def test_of_a_job_without_files_an_early_word_is_not_waited_for(barn: Barn) -> None:
    """A guest that says that it packs, though nobody asked for files, gets no more time by that."""
    await barn.add_pod()
    barn.host.guests.packs_s = 1e9
    barn.host.guests.job_s = 2.0
    deadline = barn.host.clock.now() + timedelta(seconds=20)
    barn.host.dispatch.add("local-1", deadline=deadline.isoformat())
    barn.start()
    await barn.until_phase("Failed")

    assert end_of(barn)[1] == "DeadlineExceeded"


@scenario()
async def test_a_guest_of_an_older_image_that_packs_nothing_is_said_to_be_too_old(
    barn: Barn,
) -> None:
    await barn.add_pod()
    barn.host.guests.code = 7
    job = replace(a_job_with_files(barn), upload=None, files=None)
    barn.host.dispatch.queue.put_nowait(job)
    barn.start()
    await barn.until_phase("Failed")

    assert end_of(barn) == (7, "Error", TOO_OLD)


@scenario()
async def test_a_guest_that_knows_nothing_of_files_is_given_no_job_that_needs_some(
    barn: Barn,
) -> None:
    uid = await barn.add_pod()
    barn.host.dispatch.queue.put_nowait(a_job_with_files(barn))
    barn.start()
    await barn.until_phase("Failed")

    assert barn.guest(uid).jobs == []
    assert barn.host.dispatch.ended["local-1"].reason == "GuestTooOld", "and its job is over"
    assert uid not in barn.host.dispatch.held


def test_a_mailbox_shows_whether_its_guest_knows_of_files(tmp_path: Path) -> None:
    mailbox = HostMailbox(tmp_path / "box")
    mailbox.make()
    for said, knows in (
        (b"", False),
        (b"archives", True),
        (b"files", False),
        (b"x archives\n", True),
    ):
        (tmp_path / "box" / READY).write_bytes(said)
        signs = mailbox.look()
        assert (signs.ready, signs.takes_files) == (True, knows)


def test_files_are_in_the_mailbox_whole_and_go_with_the_job(tmp_path: Path) -> None:
    mailbox = HostMailbox(tmp_path / "box")
    mailbox.make()
    given = tmp_path / "given"
    given.write_bytes(TEXT)
    for _ in range(2):
        mailbox.put_files(given)
    mailbox.put_job(b"{}")
    assert (tmp_path / "box" / FILES_IN).read_bytes() == TEXT
    assert mailbox.look().overfull == ""
    mailbox.take_job_back()
    assert list((tmp_path / "box").iterdir()) == []


def test_a_mailbox_shows_how_a_job_ended_while_its_files_are_packed(tmp_path: Path) -> None:
    box, mailbox = tmp_path / "box", HostMailbox(tmp_path / "box")
    mailbox.make()
    for said, code in ((b'{"code": 7}', 7), (b"{", None), (b'{"code": 256}', None)):
        (box / ENDED).write_bytes(said)
        signs = mailbox.look()
        assert (signs.ended.code if signs.ended else None, signs.exit) == (code, None)
        assert bool(signs.odd) == (code is None)
    (box / ENDED).unlink()
    (box / ENDED).symlink_to("/etc/passwd")
    assert mailbox.look().ended is None


def test_a_note_of_the_line_counts_where_the_guest_has_none(tmp_path: Path) -> None:
    box, mailbox = tmp_path / "box", HostMailbox(tmp_path / "box")
    mailbox.make()
    (box / FILES_NOTE).write_bytes(b"torn\x1b" + b"!" * 500)
    for said, note in (("", "torn !!!"), ("none", "none")):
        (box / EXIT).write_text(json.dumps({"code": 0, "files": said}))
        end = mailbox.look().exit
        assert end is not None
        assert end.files_note.startswith(note)
        assert len(end.files_note) <= 200


def test_files_that_a_guest_has_taken_are_its_own_and_fill_no_mailbox(tmp_path: Path) -> None:
    box, mailbox = tmp_path / "box", HostMailbox(tmp_path / "box")
    mailbox.make()
    with (box / FILES_TAKEN).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, FILES_MAX_BYTES)
    mailbox.take_job_back()
    assert (box / FILES_TAKEN).exists()
    assert mailbox.look().overfull == ""


def test_the_guests_own_note_is_bounded_and_plain(tmp_path: Path) -> None:
    mailbox = HostMailbox(tmp_path / "box")
    mailbox.make()
    said = b'{"code": 0, "files": "too\\u001b[2J large%s"}' % (b"!" * 500)
    (tmp_path / "box" / EXIT).write_bytes(said)
    end = mailbox.look().exit
    assert end is not None
    assert end.files_note.startswith("too [2J large!!!")
    assert len(end.files_note) == 200
