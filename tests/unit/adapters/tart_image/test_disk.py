from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.tart_image.disk import HOLE_BYTES, Disk, RangeWriter, usable
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
