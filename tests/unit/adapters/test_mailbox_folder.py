"""A mailbox in a folder: whole files or none, one job, nothing followed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.mailbox_folder import MailboxError, MailboxFolder
from remuda.model.mailbox import Holds

if TYPE_CHECKING:
    from pathlib import Path

UNFINISHED = ".remuda-unfinished-job.json"

_WRITES_FOR_EVER = """
import itertools, json, pathlib, sys
from remuda.adapters.mailbox_folder import MailboxFolder
root = pathlib.Path(sys.argv[1])
for number in itertools.count():
    folder = root / str(number)
    folder.mkdir()
    MailboxFolder(folder).put_job(json.dumps({"number": number, "config": "x" * 300_000}).encode())
    if number == 20:
        print("ready", flush=True)
"""


def test_a_job_is_put_in_for_its_owner_only(tmp_path: Path) -> None:
    mailbox = MailboxFolder(tmp_path)
    assert mailbox.holds() is Holds.NOTHING
    mailbox.put_job(b'{"job_id": "1"}')

    assert (tmp_path / "job.json").read_bytes() == b'{"job_id": "1"}'
    assert (tmp_path / "job.json").stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["job.json"]
    assert mailbox.holds() is Holds.JOB


def test_a_stop_is_a_file_of_that_name(tmp_path: Path) -> None:
    MailboxFolder(tmp_path).put_stop()
    assert [entry.name for entry in tmp_path.iterdir()] == ["stop"]
    assert MailboxFolder(tmp_path).holds() is Holds.STOP


@pytest.mark.parametrize("name", ["job.json", "stop", "started", "exit.json"])
def test_no_job_is_put_next_to_what_is_there(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("first")
    with pytest.raises(MailboxError):
        MailboxFolder(tmp_path).put_job(b"second")
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {name: "first"}


@pytest.mark.parametrize("name", ["started", "exit.json"])
def test_a_mailbox_whose_job_was_taken_out_is_spent(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "stop").touch()
    assert MailboxFolder(tmp_path).holds() is Holds.SPENT


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    folder = tmp_path / "mailbox"
    folder.mkdir()
    (folder / UNFINISHED).symlink_to(theirs)
    MailboxFolder(folder).put_job(b"secret")

    assert theirs.read_text() == "theirs"
    assert (folder / "job.json").read_bytes() == b"secret"
    assert not (folder / "job.json").is_symlink()


def test_a_dangling_link_counts_as_a_job(tmp_path: Path) -> None:
    (tmp_path / "job.json").symlink_to(tmp_path / "nowhere")
    assert MailboxFolder(tmp_path).holds() is Holds.JOB


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / UNFINISHED).write_text("a secret")
    (tmp_path / "runner.log").write_text("not ours")
    MailboxFolder(tmp_path).sweep()
    assert [entry.name for entry in tmp_path.iterdir()] == ["runner.log"]


def test_a_mailbox_that_is_not_there_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(MailboxError, match="No such file or directory"):
        MailboxFolder(tmp_path / "none").holds()


def test_a_mailbox_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mailbox").touch()
    with pytest.raises(MailboxError, match="Not a directory"):
        MailboxFolder(tmp_path / "mailbox").put_stop()


def test_a_job_shows_only_once_it_is_durable(tmp_path: Path) -> None:
    seen: list[bool] = []

    def look(_: int) -> None:
        seen.append((tmp_path / "job.json").exists())

    MailboxFolder(tmp_path, sync=look).put_job(b"{}")

    assert seen == [False, True], "the file is made durable under another name, then the folder"


@pytest.mark.parametrize("seed", range(4))
def test_a_writer_that_is_killed_leaves_whole_jobs_or_none(tmp_path: Path, seed: int) -> None:
    writer = subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-c", _WRITES_FOR_EVER, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    with writer.stdout:
        writer.stdout.readline()
        for _ in range(seed * 997):  # kill it at another moment each time
            os.sched_yield()
        writer.send_signal(signal.SIGKILL)
        writer.wait(10)

    folders = sorted(tmp_path.iterdir(), key=lambda folder: int(folder.name))
    assert len(folders) > 20
    for folder in folders:
        job = folder / "job.json"
        if job.exists():
            assert json.loads(job.read_bytes())["number"] == int(folder.name)
        MailboxFolder(folder).sweep()
        assert {entry.name for entry in folder.iterdir()} <= {"job.json"}
