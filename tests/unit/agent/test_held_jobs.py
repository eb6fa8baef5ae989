"""Jobs on disk between their beginning and their mailbox: whole or lost, never another's, never shown."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.held_jobs import HeldJobFailed, HeldJobs, Unreadable
from remuda.control.durable import UNFINISHED
from remuda.model.errors import BadInput
from remuda.ports.desk import HandedJob, JobKind
from tests.unit.agent.builders import UID
from tests.unit.agent.desks import LOCAL, SECRET

if TYPE_CHECKING:
    from pathlib import Path

OTHER_UID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def held(tmp_path: Path) -> HeldJobs:
    return HeldJobs(tmp_path / "held")


def file_of(tmp_path: Path, uid: str = UID) -> Path:
    return tmp_path / "held" / f"{uid}.json"


def test_a_kept_job_is_there_after_a_restart_until_it_is_dropped(
    held: HeldJobs, tmp_path: Path
) -> None:
    assert held.get(UID) is None
    held.keep(UID, LOCAL)
    again = HeldJobs(tmp_path / "held")
    assert again.get(UID) == LOCAL
    assert again.get(OTHER_UID) is None
    for _ in range(2):
        again.drop(UID)
    assert HeldJobs(tmp_path / "held").get(UID) is None


def test_it_is_for_this_user_alone(held: HeldJobs, tmp_path: Path) -> None:
    held.keep(UID, LOCAL)
    assert stat.S_IMODE(file_of(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "held").stat().st_mode) == 0o700


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    (tmp_path / "held").chmod(0o777)
    with pytest.raises(BadInput):
        HeldJobs(tmp_path / "held")


def test_a_later_job_takes_the_place_of_the_one_before(held: HeldJobs) -> None:
    later = HandedJob(job_id="local-2", kind=JobKind.LOCAL, runner_name="r", document=b"\x00\xff")
    held.keep(UID, LOCAL)
    held.keep(UID, later)
    assert held.get(UID) == later


def test_the_largest_job_is_kept(held: HeldJobs) -> None:
    largest = HandedJob(
        job_id="local-3", kind=JobKind.LOCAL, runner_name="r", document=b"\x01" * 4 * 1024 * 1024
    )
    held.keep(UID, largest)
    assert held.get(UID) == largest


@given(data=st.data())
def test_a_damaged_file_is_named_and_never_believed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    held = HeldJobs(folder / "held")
    held.keep(UID, LOCAL)
    file = file_of(folder)
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    file.write_bytes(content)
    found = held.get(UID)
    assert isinstance(found, Unreadable)
    assert found.file == file
    assert SECRET not in f"{found!r}"


def test_what_is_no_file_or_anothers_is_named(held: HeldJobs, tmp_path: Path) -> None:
    held.keep(OTHER_UID, LOCAL)
    file_of(tmp_path).write_bytes(file_of(tmp_path, OTHER_UID).read_bytes())
    found = held.get(UID)
    assert isinstance(found, Unreadable)
    assert OTHER_UID in found.why
    held.drop(UID)
    file_of(tmp_path).symlink_to(file_of(tmp_path, OTHER_UID))
    assert isinstance(held.get(UID), Unreadable)
    held.keep(UID, LOCAL)  # what was lost may be given again
    assert held.get(UID) == LOCAL
    assert held.get(OTHER_UID) == LOCAL


def test_one_of_a_later_version_is_not_guessed_at(held: HeldJobs, tmp_path: Path) -> None:
    held.keep(UID, LOCAL)
    content = json.loads(file_of(tmp_path).read_bytes())
    file_of(tmp_path).write_text(json.dumps({**content, "format": "remuda.dev/held-job/v2"}))
    assert isinstance(held.get(UID), Unreadable)


def test_what_no_pod_needs_any_more_is_swept(held: HeldJobs, tmp_path: Path) -> None:
    held.keep(UID, LOCAL)
    held.keep(OTHER_UID, LOCAL)
    assert held.drop_all_but([UID]) == (f"{OTHER_UID}.json",)
    assert held.drop_all_but([UID, ""]) == ()  # whose record has no name of ours
    (tmp_path / "held" / f"{UNFINISHED}{UID}.json").write_text(SECRET)
    again = HeldJobs(tmp_path / "held")
    assert os.listdir(tmp_path / "held") == [f"{UID}.json"]  # noqa: PTH208 - names alone
    assert again.get(UID) == LOCAL


def test_a_disk_that_does_not_take_it_is_an_error_without_its_content(tmp_path: Path) -> None:
    broken = False

    def sync(_: int) -> None:
        if broken:
            raise OSError(28, "No space left on device")

    held = HeldJobs(tmp_path / "held", sync=sync)
    broken = True
    with pytest.raises(HeldJobFailed, match="No space left") as raised:
        held.keep(UID, LOCAL)
    assert SECRET not in f"{raised.value!r}{raised.value.__cause__}{raised.value.__dict__}"
    assert held.get(UID) is None
