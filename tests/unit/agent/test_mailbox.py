"""The host's side of the mailbox, with a guest that means harm."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.agent.decide.verdict import GuestExit
from remuda.agent.mailbox import (
    BOUNDS,
    LOG_TAIL_MAX_BYTES,
    REASON_MAX_CHARS,
    HostMailbox,
    HostMailboxError,
    Signs,
    take_back_once_read,
)
from remuda.model.mailbox import Holds
from remuda.sim.clock import SimClock
from remuda.sim.loop import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = b'{"encoded_jit_config": "hunter2"}'


@pytest.fixture
def box(tmp_path: Path) -> Path:
    HostMailbox(tmp_path / "vm/mailbox").make()
    return tmp_path / "vm/mailbox"


def test_a_new_mailbox_shows_nothing_and_is_for_its_owner_alone(box: Path) -> None:
    assert HostMailbox(box).look() == Signs()
    assert box.stat().st_mode & 0o777 == 0o700


def test_a_mailbox_is_made_empty(box: Path) -> None:
    (box / "exit.json").write_text('{"code": 0}')
    HostMailbox(box).make()
    assert list(box.iterdir()) == []


def test_a_guest_gets_one_job_and_ends(box: Path) -> None:
    mailbox = HostMailbox(box)
    (box / "ready").touch()
    assert mailbox.look() == Signs(ready=True)

    mailbox.put_job(SECRET)
    assert (box / "job.json").read_bytes() == SECRET
    assert (box / "job.json").stat().st_mode & 0o777 == 0o600
    assert mailbox.look().holds is Holds.JOB

    (box / "started").touch()
    mailbox.take_job_back()
    signs = mailbox.look()
    assert (signs.started, signs.holds) == (True, Holds.SPENT)

    at = "2026-11-01T12:00:00Z"
    (box / "exit.json").write_text(json.dumps({"code": 3, "reason": "tests", "finished_at": at}))
    noon = datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert mailbox.look().exit == GuestExit(code=3, reason="tests", finished_at=noon)

    mailbox.remove()
    mailbox.remove()
    assert not box.exists()


@pytest.mark.parametrize("name", ["job.json", "started", "exit.json", "stop"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda p: p.symlink_to("x")])
def test_no_job_goes_into_a_mailbox_that_holds_anything(
    box: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(box / name)
    with pytest.raises(HostMailboxError, match="holds") as caught:
        HostMailbox(box).put_job(SECRET)
    assert "hunter2" not in str(caught.value)
    assert [p.name for p in box.iterdir()] == [name]


def test_a_guest_in_the_way_of_a_job_gets_none_and_no_error_shows_the_job(box: Path) -> None:
    (box / ".remuda-unfinished-job.json").mkdir()
    with pytest.raises(HostMailboxError) as caught:
        HostMailbox(box).put_job(SECRET)
    assert "hunter2" not in str(caught.value)
    assert not (box / "job.json").exists()


# --- what a guest says about its end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "code"),
    [
        pytest.param('{"code": 0}', 0, id="success"),
        pytest.param('{"code": 255}', 255, id="the highest code"),
        pytest.param('{"code": 143, "more": [1]}', 143, id="what we do not know is passed over"),
        pytest.param('{"code": 1, "reason": 7, "finished_at": "soon"}', 1, id="a wrong reason or time costs no code"),
        pytest.param('{"code": 999}', None, id="999"),
        pytest.param('{"code": 256}', None, id="256"),
        pytest.param('{"code": -1}', None, id="less than nothing"),
        pytest.param('{"code": 4294967296}', None, id="what would be 0 in 32 bits"),
        pytest.param('{"code": 1e99}', None, id="a number that is none"),
        pytest.param('{"code": 0.5}', None, id="half a code"),
        pytest.param('{"code": true}', None, id="a truth"),
        pytest.param('{"code": "0"}', None, id="a text"),
        pytest.param('{"code": null}', None, id="nothing"),
        pytest.param("{}", None, id="no code"),
        pytest.param("", None, id="an empty file"),
        pytest.param('{"code": 0', None, id="half a file"),
        pytest.param("[" * 16_000, None, id="a deep hole"),
        pytest.param('{"code": 0, "reason": ' + "[" * 16_000, None, id="a deep hole where anything may stand"),
        pytest.param('{"code": 0}' + " " * 20_000, None, id="more than fits"),
        pytest.param('{"code": ' + "9" * 10_000 + "}", None, id="a number without end"),
    ],
)  # fmt: skip
def test_exit(box: Path, written: str, code: int | None) -> None:
    (box / "exit.json").write_text(written)
    signs = HostMailbox(box).look()
    assert (signs.exit.code if signs.exit else None) == code
    assert (signs.odd == ()) is (code is not None)
    assert signs.holds is Holds.SPENT, "whatever it says, it had its job"


def test_bytes_that_are_no_text_are_refused(box: Path) -> None:
    (box / "exit.json").write_bytes(b'{"code": 0, "reason": "\xff\xfe"}')
    assert HostMailbox(box).look().exit is None


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_no_bytes_break_a_look(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    box = tmp_path_factory.mktemp("box")
    (box / "exit.json").write_bytes(content)
    (box / "runner.log").write_bytes(content)
    signs = HostMailbox(box).look()
    assert signs.exit is None or 0 <= signs.exit.code <= 255
    HostMailbox(box).log_tail()


def test_a_reason_is_short_and_plain(box: Path) -> None:
    said = {"code": 1, "reason": "\x1b[2J\n" + "x" * 10_000}
    (box / "exit.json").write_text(json.dumps(said))
    found = HostMailbox(box).look().exit
    assert found is not None
    assert len(found.reason) == REASON_MAX_CHARS
    assert found.reason.isprintable()


def test_a_time_without_a_zone_is_no_time(box: Path) -> None:
    (box / "exit.json").write_text('{"code": 0, "finished_at": "2026-11-01T12:00:00"}')
    assert HostMailbox(box).look().exit == GuestExit(code=0)


@pytest.mark.parametrize("name", ["ready", "started", "exit.json"])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda p: p.symlink_to("/etc/hostname"), id="a link"),
        pytest.param(os.mkfifo, id="a pipe"),
        pytest.param(os.mkdir, id="a folder"),
    ],
)
def test_what_is_no_file_says_nothing(box: Path, name: str, make: Callable[[Path], None]) -> None:
    make(box / name)
    signs = HostMailbox(box).look()
    assert (signs.ready, signs.started, signs.exit) == (False, False, None)
    assert [name in said for said in signs.odd] == [True]


def test_a_guest_that_fills_its_mailbox_is_seen(box: Path) -> None:
    for number in range(BOUNDS.entries_max + 1):
        (box / str(number)).touch()
    assert "files" in HostMailbox(box).look().overfull


def test_a_log_may_not_have_the_room_of_archives(box: Path) -> None:
    (box / "runner.log").write_bytes(bytes(80 * 1024 * 1024))
    assert "bytes" in HostMailbox(box).look().overfull


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o600])
def test_a_guest_that_locks_its_mailbox_hides_nothing_in_it(box: Path, mode: int) -> None:
    for number in range(BOUNDS.entries_max + 1):
        (box / str(number)).touch()
    box.chmod(mode)
    assert "files" in HostMailbox(box).look().overfull
    assert box.stat().st_mode & 0o777 == 0o700, "an ordinary user could look at nothing otherwise"


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "tail"),
    [
        pytest.param(b"", "", id="an empty log"),
        pytest.param(b"a\nb\n", "a\nb\n", id="a short log, whole"),
        pytest.param(b"a\nb", "a\nb", id="a last line that is not ended"),
        pytest.param(b"\n" * 500, "\n" * 200, id="no more than the last lines"),
        pytest.param(b"x" * 99 + b"\n" + b"y" * LOG_TAIL_MAX_BYTES, "", id="part of a line is no line"),
        pytest.param(b"x\n" + b"y" * (LOG_TAIL_MAX_BYTES - 2) + b"\nz\n", "z\n", id="the end, not the beginning"),
        pytest.param(b"\xff\n", "\ufffd\n", id="bytes that are no text are replaced"),
    ],
)  # fmt: skip
def test_log_tail(box: Path, written: bytes, tail: str) -> None:
    (box / "runner.log").write_bytes(written)
    assert HostMailbox(box).log_tail() == tail


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/etc/hostname"), os.mkfifo, os.mkdir])
def test_a_log_that_is_no_file_is_empty(box: Path, make: Callable[[Path], None]) -> None:
    make(box / "runner.log")
    assert HostMailbox(box).log_tail() == ""


def test_no_log_is_an_empty_one(box: Path) -> None:
    assert HostMailbox(box).log_tail() == ""


# --- taking the job back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["started", "exit.json", "removed"])
@pytest.mark.parametrize("read_after_s", [0.0, 0.1, 3.9, 100.0])
def test_a_job_is_gone_within_a_second_after_it_was_read(
    box: Path, sign: str, read_after_s: float
) -> None:
    mailbox = HostMailbox(box, sync=lambda _: None)
    mailbox.put_job(SECRET)

    async def guest(clock: SimClock) -> float:
        await clock.sleep(read_after_s)
        if sign == "removed":
            (box / "job.json").unlink()
        else:
            (box / sign).write_text('{"code": 0}')
        return clock.monotonic()

    async def story() -> tuple[float, float]:
        clock = SimClock(asyncio.get_running_loop())
        async with asyncio.TaskGroup() as group:
            read = group.create_task(guest(clock))
            await take_back_once_read(mailbox, clock)
            gone_at = clock.monotonic()
        return read.result(), gone_at

    read_at, gone_at = run(story)
    assert not (box / "job.json").exists()
    assert read_at <= gone_at <= read_at + 1.0


def test_a_job_that_nobody_read_stays(box: Path) -> None:
    mailbox = HostMailbox(box, sync=lambda _: None)
    mailbox.put_job(SECRET)

    async def story() -> None:
        clock = SimClock(asyncio.get_running_loop())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await take_back_once_read(mailbox, clock)

    run(story)
    assert (box / "job.json").read_bytes() == SECRET


def test_what_a_killed_agent_left_of_a_job_is_taken_back_too(box: Path) -> None:
    (box / ".remuda-unfinished-job.json").write_bytes(SECRET)
    HostMailbox(box).take_job_back()
    assert list(box.iterdir()) == []


def test_a_mailbox_that_the_guest_locked_gives_its_job_back(box: Path) -> None:
    HostMailbox(box).put_job(SECRET)
    box.chmod(0o555)
    HostMailbox(box).take_job_back()
    assert list(box.iterdir()) == []
    assert box.stat().st_mode & 0o777 == 0o700, "an ordinary user could remove nothing otherwise"


def test_a_folder_in_place_of_a_job_is_the_guests_own(box: Path) -> None:
    (box / "job.json").mkdir()
    HostMailbox(box).take_job_back()
    assert (box / "job.json").is_dir()


def test_a_stop_may_be_put_in_again_and_next_to_a_job(box: Path) -> None:
    mailbox = HostMailbox(box)
    mailbox.put_job(SECRET)
    mailbox.put_stop()
    mailbox.put_stop()
    assert {p.name for p in box.iterdir()} == {"job.json", "stop"}


def test_a_mailbox_that_is_not_there_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(HostMailboxError, match="No such file or directory"):
        HostMailbox(tmp_path / "none").look()


def test_a_mailbox_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "box").symlink_to(tmp_path / "theirs")
    with pytest.raises(HostMailboxError):
        HostMailbox(tmp_path / "box").put_job(SECRET)
    assert list((tmp_path / "theirs").iterdir()) == []
