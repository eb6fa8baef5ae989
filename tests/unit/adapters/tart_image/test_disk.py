from __future__ import annotations

import errno
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.tart_image.disk import HOLE_BYTES, PIECES_MAX, Disk, RangeWriter, usable
from remuda.adapters.tart_image.errors import FolderUnusable, NoSpace

if TYPE_CHECKING:
    from pathlib import Path


def test_zeros_are_holes_and_ranges_meet(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    length = 4 * HOLE_BYTES
    with Disk(path, length) as disk:
        for start, end in ((length // 2 + 3, length), (0, length // 2 + 3)):
            writer = RangeWriter(disk, start)
            writer.write(bytes(end - start - 1))
            writer.write(b"x")
            writer.finish()
    content = path.read_bytes()
    assert content.count(b"x") == 2
    assert content[length // 2 + 2 : length // 2 + 3] == b"x"
    assert content[-1:] == b"x"
    assert path.stat().st_blocks * 512 <= 3 * HOLE_BYTES, "at least the empty quarters are holes"


@pytest.mark.parametrize("start", [0, 1, 4096, HOLE_BYTES - 4096, HOLE_BYTES + 5])
@pytest.mark.parametrize("step", [5000, 4096, 65_536, HOLE_BYTES, 3 * HOLE_BYTES + 7])
def test_pieces_of_any_size_come_to_lie_where_they_belong(
    tmp_path: Path, start: int, step: int
) -> None:
    path = tmp_path / "disk.img"
    content = os.urandom(3 * HOLE_BYTES + 4321)
    length = start + len(content) + 99
    with Disk(path, length) as disk:
        writer = RangeWriter(disk, start)
        for at in range(0, len(content), step):
            writer.write(content[at : at + step])
        writer.finish()
        assert disk.digest(start, len(content)) == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert path.read_bytes() == bytes(start) + content + bytes(99)


def test_pieces_of_a_byte_each_are_written_in_time(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    content = bytes(1 + number % 255 for number in range(10 * PIECES_MAX + 3))
    with Disk(path, len(content)) as disk:
        writer = RangeWriter(disk, 0)
        for number in range(len(content)):
            writer.write(content[number : number + 1])
        assert path.read_bytes()[: 9 * PIECES_MAX] == content[: 9 * PIECES_MAX], "few are held"
        writer.finish()
    assert path.read_bytes() == content


def test_several_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    parts = [bytes([number]) * (2 * HOLE_BYTES) for number in range(1, 5)]

    def put(disk: Disk, number: int) -> None:
        writer = RangeWriter(disk, number * 2 * HOLE_BYTES)
        for at in range(0, 2 * HOLE_BYTES, 65_536):
            writer.write(parts[number][at : at + 65_536])
        writer.finish()

    with Disk(path, 8 * HOLE_BYTES) as disk, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: put(disk, number), range(4)))
    assert path.read_bytes() == b"".join(parts)


def test_zeros_of_a_second_try_replace_what_the_first_left(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    path.write_bytes(b"j" * (2 * HOLE_BYTES))
    with Disk(path, 2 * HOLE_BYTES) as disk:
        assert disk.had_content
        writer = RangeWriter(disk, 0)
        writer.write(bytes(HOLE_BYTES))
        writer.finish()
    assert path.read_bytes() == bytes(HOLE_BYTES) + b"j" * HOLE_BYTES


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "disk.img").symlink_to(victim)
    with pytest.raises(FolderUnusable), Disk(tmp_path / "disk.img", 10):
        pass
    assert victim.read_bytes() == b"mine"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["full", "over its quota"])
def test_a_full_disk_has_its_own_name(tmp_path: Path, number: int) -> None:
    with pytest.raises(NoSpace, match="Free space"), usable(tmp_path / "disk.img", "written"):
        raise OSError(number, os.strerror(number))
