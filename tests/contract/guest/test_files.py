"""Files that go with a job and come back: unpacked before it begins, packed after its end, under every shell."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest

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
    assert not (guest.place / "files-in.tgz").exists()


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


def test_a_guest_says_that_it_knows_of_files(guest: Guest) -> None:
    guest.start()
    assert guest.until("ready").takes_files
    guest.mailbox.put_stop()
    guest.ended()
