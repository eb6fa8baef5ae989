"""Files that go with a job and come back: unpacked before it begins, packed after its end, under every shell."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.support.guest_script import WAIT_S
from tests.support.processes import pause, seconds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.guest_script import Guest


def an_archive(folder: Path, **contents: bytes) -> Path:
    file = folder / "given.tgz"
    with tarfile.open(file, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        for name, data in contents.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return file


def put(guest: Guest, script: str, archive: Path | None = None, **more: object) -> None:
    if archive is not None:
        guest.mailbox.put_files(archive)
        more = {"upload_bytes": archive.stat().st_size, "upload_sha256": "0" * 64, **more}
    guest.put(script, **more)


def came_back(guest: Guest) -> dict[str, bytes]:
    """Return the files that are in what the guest left."""
    found = {}
    with tarfile.open(guest.place / "files-out.tgz") as tar:
        for member in tar:
            if (data := tar.extractfile(member)) is not None:
                found[member.name.removeprefix("./")] = data.read()
    return found


def test_files_are_there_before_the_job_and_come_back_after_it(guest: Guest) -> None:
    archive = an_archive(guest.folder, run=b"#!/bin/sh\necho ran\n", sub__a=b"one\n")
    script = './run; mkdir -p out/deep; tr a-z A-Z <sub/a >out/deep/a; echo x >"a b"; exit 7'
    put(guest, script, archive, download='out\na b\n-none\n"\\n"')
    guest.start()
    ended = guest.ended()
    assert (ended.code, ended.reason, ended.files_note) == (7, "The job ended by itself", "")
    assert guest.log() == "ran\n"
    assert came_back(guest) == {"out/deep/a": b"ONE\n", "a b": b"x\n"}
    assert names_of_files(guest) == ["files-out.tgz"]


def test_all_of_the_folder_may_come_back(guest: Guest) -> None:
    put(guest, "echo 1 >one; mkdir two; echo 2 >two/2", download=".")
    guest.start()
    assert guest.ended().code == 0
    found = {name.removeprefix("./"): data for name, data in came_back(guest).items()}
    assert found == {"one": b"1\n", "two/2": b"2\n"}


@pytest.mark.parametrize("broken", ["missing", "short", "garbage"])
def test_a_job_is_not_run_without_its_files(guest: Guest, broken: str) -> None:
    archive = an_archive(guest.folder, a=b"one" * 10_000)
    if broken == "garbage":
        archive.write_bytes(b"this is no archive")
    size = archive.stat().st_size + (1 if broken == "short" else 0)
    given = None if broken == "missing" else archive
    put(guest, "echo run", given, upload_bytes=size)
    guest.start()
    ended = guest.ended()
    assert (ended.code, ended.reason) == (1, "The files of the job could not be unpacked")
    assert guest.log() == ""
    assert not (guest.place / "ended").exists(), "it never ran"


def test_a_job_that_leaves_nothing_of_it_keeps_its_code_and_says_so(guest: Guest) -> None:
    ended = guest.ran("exit 3", download="dist")
    assert (ended.code, ended.files_note) == (3, "the job left none of them")
    assert not (guest.place / "files-out.tgz").exists()


def test_what_is_too_large_is_not_left_in_the_mailbox(guest: Guest) -> None:
    put(guest, "dd if=/dev/urandom of=big bs=1024 count=40 2>/dev/null", download="big")
    guest.start(REMUDA_FILES_MAX_BYTES="20000")
    ended = guest.ended()
    assert (ended.code, ended.files_note) == (0, "they have more than 20000 bytes, packed")
    assert [file.name for file in guest.place.iterdir() if "files" in file.name] == []


def test_a_job_that_is_told_to_stop_packs_nothing(guest: Guest) -> None:
    guest.put("echo begun; echo x >a; while :; do sleep 0.05; done", download="a")
    guest.start()
    guest.until_logged("begun\n")
    guest.mailbox.put_stop()
    assert guest.ended().files_note == "the job was told to stop"
    assert not (guest.place / "files-out.tgz").exists()


# --- what takes long, or goes wrong ----------------------------------------------------------------------------------


def in_place_of(guest: Guest, program: str, does: str) -> None:
    """Have a program do something else, after it has said that it was begun."""
    guest.first = f"{program}() {{ : >'{guest.folder}/begun'; {does}; }}"


def once_told(guest: Guest, program: str) -> None:
    """Have a program wait until the file ``go`` is there."""
    does = f"until [ -e '{guest.folder}/go' ]; do sleep 0.05; done; command {program} \"$@\""
    in_place_of(guest, program, does)


def until_begun(guest: Guest) -> None:
    deadline = seconds() + WAIT_S
    while not (guest.folder / "begun").exists():
        assert seconds() < deadline, guest.said()
        pause(0.02)


def names_of_files(guest: Guest) -> list[str]:
    return sorted(file.name for file in guest.place.iterdir() if "files" in file.name)


def test_how_a_job_ended_is_known_before_its_files_are_packed(guest: Guest) -> None:
    put(guest, "echo x >a; exit 7", download="a")
    once_told(guest, "tar")
    guest.start()
    until_begun(guest)
    signs = guest.mailbox.look()
    assert signs.ended is not None
    assert (signs.ended.code, signs.ended.reason) == (7, "The job ended by itself")
    assert signs.exit is None
    (guest.folder / "go").touch()
    ended = guest.ended()
    assert (ended.code, ended.reason, ended.files_note) == (7, "The job ended by itself", "")
    assert ended.finished_at == signs.ended.finished_at, "when the job ended, not its packing"
    assert came_back(guest) == {"a": b"x\n"}


def test_packing_that_hangs_costs_the_files_and_not_the_exit_code(guest: Guest) -> None:
    put(guest, "echo x >a; exit 7", download="a")
    once_told(guest, "tar")
    guest.start(REMUDA_PACK_SECONDS="1")
    ended = guest.ended()
    assert (ended.code, ended.reason) == (7, "The job ended by itself")
    assert ended.files_note == "they could not be packed in time"
    assert names_of_files(guest) == []


@pytest.mark.parametrize(
    ("program", "does"),
    [
        pytest.param("gzip", "command gzip -c | head -c 1000; exit 1", id="half an archive"),
        pytest.param("head", "command head -c 1000; return 1", id="a full disk"),
        pytest.param("mv", 'case $* in *.tgz*) return 1 ;; esac; command mv "$@"', id="no room"),
    ],
)
def test_packing_that_breaks_off_leaves_no_part_and_the_exit_code(
    guest: Guest, program: str, does: str
) -> None:
    put(guest, "dd if=/dev/urandom of=a bs=1024 count=40 2>/dev/null; exit 7", download="a")
    in_place_of(guest, program, does)
    guest.start()
    ended = guest.ended()
    assert (ended.code, ended.reason) == (7, "The job ended by itself")
    assert ended.files_note in {
        "they could not be packed",
        "they could not be put into the mailbox",
    }
    assert names_of_files(guest) == []


def test_packing_ends_when_nobody_wants_the_files_any_more(guest: Guest) -> None:
    put(guest, "echo x >a; exit 7", download="a")
    once_told(guest, "tar")
    guest.start()
    until_begun(guest)
    guest.mailbox.put_stop()
    ended = guest.ended()
    assert (ended.code, ended.reason) == (7, "The job ended by itself")
    assert ended.files_note == "the job was told to stop while they were packed"


def test_a_guest_that_was_killed_while_it_packed_says_how_its_job_had_ended(guest: Guest) -> None:
    put(guest, "echo x >a; exit 7", download="a")
    once_told(guest, "tar")
    guest.start()
    until_begun(guest)
    known = guest.mailbox.look().ended
    assert known is not None
    guest.processes[-1].kill()
    guest.processes[-1].wait()
    guest.first = ""
    guest.start()
    ended = guest.ended()
    assert (ended.code, ended.reason, ended.finished_at) == (7, known.reason, known.finished_at)
    assert ended.files_note == "the guest runner was killed while it packed them"


def test_a_job_without_files_to_bring_back_says_its_end_once(guest: Guest) -> None:
    assert guest.ran("exit 7").code == 7
    assert not (guest.place / "ended").exists(), "an older host would not know what that is"


def test_a_job_is_taken_out_of_the_mailbox_before_its_files_are_unpacked(guest: Guest) -> None:
    put(guest, "cat a; cat b", an_archive(guest.folder, a=b"one\n", b=b"two\n"))
    once_told(guest, "tar")
    guest.start()
    until_begun(guest)
    signs = guest.until("started")
    deadline = seconds() + WAIT_S
    while (guest.place / "job.json").exists():
        assert seconds() < deadline
        pause(0.02)
    assert signs.exit is None
    guest.mailbox.take_job_back()  # as the agent does, once it sees that
    (guest.folder / "go").touch()
    assert guest.ended().code == 0
    assert guest.log() == "one\ntwo\n"
    assert names_of_files(guest) == []


def test_a_guest_that_was_killed_while_it_unpacked_says_that_its_job_never_began(
    guest: Guest,
) -> None:
    put(guest, "echo run", an_archive(guest.folder, a=b"one\n"))
    once_told(guest, "tar")
    guest.start()
    until_begun(guest)
    guest.processes[-1].kill()
    guest.processes[-1].wait()
    guest.first = ""
    guest.start()
    ended = guest.ended()
    assert (ended.code, ended.reason) == (137, "The guest runner was killed before its job began")
    assert guest.log() == ""


def test_a_stop_while_files_are_unpacked_keeps_the_job_from_its_beginning(guest: Guest) -> None:
    put(guest, "echo run", an_archive(guest.folder, a=b"one\n"))
    once_told(guest, "tar")
    guest.start()
    until_begun(guest)
    guest.mailbox.put_stop()
    (guest.folder / "go").touch()
    ended = guest.ended()
    assert (ended.code, ended.reason) == (143, "It was told to stop before its job began")
    assert guest.log() == ""


def test_a_guest_says_that_it_knows_of_files(guest: Guest) -> None:
    guest.start()
    assert guest.until("ready").takes_files
    guest.mailbox.put_stop()
    guest.ended()
