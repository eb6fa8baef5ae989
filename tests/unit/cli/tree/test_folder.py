"""The data folder: who may use it, what is in the way, and what is kept in it."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from remuda.cli.tree.folder import (
    ROOM_MIN_BYTES,
    AlreadyUp,
    Folder,
    Kept,
    check_room,
    held,
    holder,
    prepare,
    usable,
    write_whole,
)
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = 65534
KEPT = Kept(node="mini", driver="process", image="process", vms=2, pool="default", ports={"a": 1})


def test_a_folder_is_made_and_used_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new" / "fleet")

    prepare(folder)
    prepare(folder)

    assert folder.logs.is_dir()
    assert stat.S_IMODE(folder.logs.stat().st_mode) == 0o700


def test_a_start_that_was_killed_right_away_is_no_obstacle(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.lock.touch()
    (tmp_path / "parts").mkdir()

    prepare(folder)

    assert folder.kept() is None


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()

    with pytest.raises(BadInput, match=r"thesis\.tex"):
        prepare(Folder(tmp_path))

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_images_and_an_app_may_be_there_before_the_first_start(tmp_path: Path) -> None:
    (tmp_path / "images" / "linux").mkdir(parents=True)
    (tmp_path / "github").mkdir()

    prepare(Folder(tmp_path))

    assert (tmp_path / "images" / "linux").is_dir()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(BadInput, match="--data") as caught:
        prepare(Folder(tmp_path / "file" / "fleet"))

    assert str(tmp_path / "file") in caught.value.why


@contextmanager
def _ordinary() -> Iterator[None]:
    """Act as an ordinary user: root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_is_closed_to_us_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with _ordinary(), pytest.raises(BadInput, match="belong to you"):
        prepare(Folder(tmp_path / "fleet"))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        pytest.param(errno.ENOSPC, "Free disk space", id="the disk is full"),
        pytest.param(errno.EDQUOT, "Free disk space", id="the quota is used up"),
        pytest.param(errno.EACCES, "belong to you", id="no permission"),
        pytest.param(errno.EROFS, "choose another one with --data", id="read only"),
    ],
)
def test_what_the_system_says_becomes_what_to_do(tmp_path: Path, number: int, fix: str) -> None:
    with pytest.raises(BadInput) as caught, usable(tmp_path):
        raise OSError(number, os.strerror(number), str(tmp_path / "x"))

    assert os.strerror(number) in caught.value.why
    assert fix in caught.value.fix


def test_a_disk_that_is_as_good_as_full_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)

    check_room(folder, ROOM_MIN_BYTES)
    with pytest.raises(BadInput, match="There is no room"):
        check_room(folder, ROOM_MIN_BYTES - 1)


def test_what_could_not_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()

    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "key", b"secret")

    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_one_at_a_time(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert holder(folder) is None

    with held(folder):
        assert holder(folder) == os.getpid()
        with pytest.raises(AlreadyUp, match=f"process {os.getpid()}"), held(folder):
            pass
        assert holder(folder) == os.getpid(), "who was refused takes nothing away"

    assert holder(folder) is None
    with held(folder):
        pass


def test_what_is_kept_comes_back_and_what_is_broken_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.kept() is None

    folder.keep(KEPT)
    assert folder.kept() == KEPT
    folder.kept_file.write_bytes(folder.kept_file.read_bytes()[:20])

    with pytest.raises(BadInput, match="Remove that file"):
        folder.kept()

    folder.kept_file.unlink()
    folder.kept_file.mkdir()  # any error of the system: another user's folder is one
    with pytest.raises(BadInput, match="cannot be used"):
        folder.kept()


def test_a_file_is_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    (tmp_path / ".token.new").write_text("half of one")

    write_whole(path, b"secret")

    assert path.read_bytes() == b"secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["token"]


def test_a_long_log_begins_anew_while_somebody_writes_to_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.logs.mkdir()
    with folder.log("agent").open("ab", buffering=0) as writer:
        writer.write(b"short\n")
        folder.bound_log("agent")
        assert folder.log("agent").read_bytes() == b"short\n"
        writer.write(b"x" * (9 * 1024 * 1024))
        folder.bound_log("agent")
        writer.write(b"after\n")

    assert folder.log("agent").read_bytes() == b"after\n"
    assert (folder.logs / "agent.log.1").stat().st_size > 9 * 1024 * 1024
    assert folder.tail("agent") == "after\n"
    assert folder.tail("nobody") == ""
