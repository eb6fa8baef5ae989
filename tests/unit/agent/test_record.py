"""The durable record: whole or not at all, and never guessed at."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.agent.decide.recorded import MAY_FOLLOW, ImageState, State, VmRecord
from remuda.agent.record import Found, RecordFailed, RecordFolder
from remuda.model.errors import BadInput
from tests.unit.agent.builders import DONE, IMAGE, NOON, UID, a_record, an_image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OTHER_UID = "11111111-2222-3333-4444-555555555555"
FULL = a_record(
    State.CLONING,
    started_at=NOON,
    ready_at=NOON + timedelta(microseconds=7),
    job_id="github.com/4711",
    delivered_at=NOON,
    job_deadline=NOON,
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RecordFolder]:
    opened = RecordFolder(tmp_path / "records")
    yield opened
    opened.close()


def reopened(folder: RecordFolder, tmp_path: Path) -> Found:
    folder.close()
    return found_in(tmp_path)


def one_file(tmp_path: Path, record: VmRecord = FULL) -> Path:
    opened = RecordFolder(tmp_path / "records")
    opened.write(record)
    opened.close()
    return tmp_path / "records/vms" / f"{record.pod_uid}.json"


def found_in(tmp_path: Path) -> Found:
    opened = RecordFolder(tmp_path / "records")
    opened.close()
    return opened.found


def test_what_was_written_is_read(folder: RecordFolder, tmp_path: Path) -> None:
    image = an_image(state=ImageState.FETCHING)
    refused = a_record(State.REFUSED, OTHER_UID)
    folder.write(FULL)
    folder.write(refused)
    folder.write_image(image)
    found = reopened(folder, tmp_path)
    assert found == Found(vms=(FULL, refused), images=(image,), unreadable=())
    assert found.vms[1].verdict == DONE


def test_what_was_forgotten_is_gone(folder: RecordFolder, tmp_path: Path) -> None:
    folder.write(FULL)
    folder.write_image(an_image())
    for _ in range(2):
        folder.forget(UID)
        folder.forget_image(IMAGE)
    assert reopened(folder, tmp_path) == Found(vms=(), images=(), unreadable=())


def test_a_record_that_was_forgotten_begins_anew(folder: RecordFolder) -> None:
    folder.write(a_record(State.CLONING))
    folder.forget(UID)
    folder.write(a_record(State.CLONING))


@pytest.mark.parametrize("after", State)
@pytest.mark.parametrize("before", State)
def test_no_record_goes_back(tmp_path: Path, before: State, after: State) -> None:
    ways = {
        State.CLONING: [State.CLONING],
        State.CLONED: [State.CLONING, State.CLONED],
        State.STARTED: [State.CLONING, State.CLONED, State.STARTED],
        State.DELIVERING: [State.CLONING, State.CLONED, State.STARTED, State.DELIVERING],
        State.DELIVERED: [
            State.CLONING,
            State.CLONED,
            State.STARTED,
            State.DELIVERING,
            State.DELIVERED,
        ],
        State.EXITED: [State.CLONING, State.EXITED],
        State.CLEARED: [State.CLONING, State.EXITED, State.CLEARED],
        State.REFUSED: [State.REFUSED],
    }
    first = RecordFolder(tmp_path, sync=lambda _: None)
    for state in ways[before]:
        first.write(a_record(state))
    first.close()
    again = RecordFolder(
        tmp_path, sync=lambda _: None
    )  # what was read back counts as what was written
    try:
        if after in MAY_FOLLOW[before]:
            again.write(a_record(after))
        else:
            with pytest.raises(AssertionError, match="may not follow"):
                again.write(a_record(after))
    finally:
        again.close()


def test_a_folder_and_its_files_are_for_their_owner_alone(
    folder: RecordFolder, tmp_path: Path
) -> None:
    folder.write(FULL)
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "records").rglob("*")}
    assert modes == {0}


def test_a_record_is_durable_before_it_shows(tmp_path: Path) -> None:
    seen: list[str] = []
    file = tmp_path / "vms" / f"{UID}.json"

    def look(descriptor: int) -> None:
        kind = "folder" if os.path.isdir(f"/dev/fd/{descriptor}") else "file"  # noqa: PTH112 - a descriptor
        seen.append(f"{kind}, {'shows' if file.exists() else 'hidden'}")

    opened = RecordFolder(tmp_path, sync=look)
    seen.clear()
    opened.write(FULL)
    opened.forget(UID)
    opened.close()
    assert seen == ["file, hidden", "folder, shows", "folder, hidden"]


def test_the_folder_of_the_first_record_is_durable_too(tmp_path: Path) -> None:
    synced: list[int] = []
    RecordFolder(tmp_path / "records", sync=synced.append).close()
    assert len(synced) == 1


def test_one_agent_at_a_time(folder: RecordFolder, tmp_path: Path) -> None:
    del folder
    with pytest.raises(BadInput, match="another agent holds them"):
        RecordFolder(tmp_path / "records")


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records").chmod(0o777)
    with pytest.raises(BadInput, match="chmod 700"):
        RecordFolder(tmp_path / "records")


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "records").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput):
        RecordFolder(tmp_path / "records")


def test_a_write_that_fails_says_so_and_leaves_the_old_record(tmp_path: Path) -> None:
    failing = False

    def sync(_: int) -> None:
        if failing:
            raise OSError(28, "No space left on device")

    opened = RecordFolder(tmp_path / "records", sync=sync)
    opened.write(FULL)
    failing = True
    with pytest.raises(RecordFailed, match="No space left on device"):
        opened.write(replace(FULL, state=State.CLONED))
    opened.close()
    assert [r.state for r in found_in(tmp_path).vms] == [State.CLONING]
    assert [p.name for p in (tmp_path / "records/vms").iterdir()] == [f"{UID}.json"]


# --- what is damaged, foreign or hostile ------------------------------------------------------------------------------


@given(cut=st.integers(min_value=0, max_value=600))
@settings(deadline=None, max_examples=60)
def test_a_file_that_was_cut_is_named_and_not_guessed_at(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    tmp_path = tmp_path_factory.mktemp("cut")
    file = one_file(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[: min(cut, len(whole) - 1)])
    found = found_in(tmp_path)
    assert found.vms == ()
    assert [(u.file, u.pod_uid) for u in found.unreadable] == [(f"vms/{UID}.json", UID)]


@given(at=st.integers(0, 600), to=st.integers(0, 255))
@settings(deadline=None, max_examples=100)
def test_no_byte_may_change(tmp_path_factory: pytest.TempPathFactory, at: int, to: int) -> None:
    tmp_path = tmp_path_factory.mktemp("changed")
    file = one_file(tmp_path)
    content = bytearray(file.read_bytes())
    content[at % len(content)] = to
    file.write_bytes(content)
    found = found_in(tmp_path)
    # Either the change is no change (of a space, of itself), or the file is none of ours.
    assert found.vms in {(FULL,), ()}
    assert len(found.vms) + len(found.unreadable) == 1


def test_a_record_of_a_later_version_is_not_read(tmp_path: Path) -> None:
    file = one_file(tmp_path)
    later = json.loads(file.read_bytes()) | {"format": "remuda.dev/agent-record/v2"}
    file.write_text(json.dumps(later))
    (unreadable,) = found_in(tmp_path).unreadable
    assert "v2" in unreadable.why


def test_a_deep_hole_is_no_record(tmp_path: Path) -> None:
    file = one_file(tmp_path)
    file.write_text('{"format": "x", "sha256": "", "record": ' + "[" * 60_000)
    assert found_in(tmp_path).vms == ()
    assert len(found_in(tmp_path).unreadable) == 1


def test_a_record_under_another_name_is_not_read(tmp_path: Path) -> None:
    file = one_file(tmp_path)
    file.rename(file.with_name(f"{OTHER_UID}.json"))
    found = found_in(tmp_path)
    assert found.vms == ()
    assert found.unreadable[0].pod_uid == OTHER_UID
    assert UID in found.unreadable[0].why


def test_strange_things_are_named_and_stay(tmp_path: Path) -> None:
    vms = one_file(tmp_path).parent
    (vms / "notes.txt").write_text("mine")
    (vms / f"{OTHER_UID}.json").symlink_to("/etc/passwd")
    os.mkfifo(vms / "pipe.json")
    (vms / "folder.json").mkdir()
    (vms / "huge.json").write_bytes(b"x" * 100_000)
    found = found_in(tmp_path)
    assert found.vms == (FULL,)
    assert {u.file.removeprefix("vms/"): u.pod_uid for u in found.unreadable} == {
        "notes.txt": "",
        f"{OTHER_UID}.json": OTHER_UID,
        "pipe.json": "pipe",
        "folder.json": "folder",
        "huge.json": "huge",
    }
    assert len(list(vms.iterdir())) == 6


def test_what_could_not_be_read_is_neither_written_over_nor_removed(tmp_path: Path) -> None:
    file = one_file(tmp_path)
    file.write_text("damaged")
    opened = RecordFolder(tmp_path / "records")
    with pytest.raises(RecordFailed, match="could not be read"):
        opened.write(a_record(State.CLONING))
    with pytest.raises(RecordFailed, match="could not be read"):
        opened.forget(UID)
    opened.close()
    assert file.read_text() == "damaged"


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    file = one_file(tmp_path)
    file.with_name(f".remuda-unfinished-{UID}.json").write_text('{"half')
    assert found_in(tmp_path) == Found(vms=(FULL,), images=(), unreadable=())
    assert [p.name for p in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("uid", ["", "../up", "a/b", ".", "x" * 64, "a\n"])
def test_a_uid_that_is_no_name_of_a_file_is_our_bug(folder: RecordFolder, uid: str) -> None:
    with pytest.raises(AssertionError):
        folder.write(a_record(State.CLONING, uid))


def test_a_record_without_its_verdict_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="verdict"):
        replace(a_record(State.EXITED), verdict=None)
