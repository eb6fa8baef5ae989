from __future__ import annotations

import hashlib
import json
import struct
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.qemu.images import (
    check_disk,
    copy_image,
    folder_of,
    read_image,
    wrong_with_disk,
)
from remuda.ports.vms import NotThere, Refused, TimedOut

if TYPE_CHECKING:
    from pathlib import Path

REF = "runners/linux:1"


def a_disk(*, version: int = 3, backing: int = 0, features: int = 0, crypt: int = 0) -> bytes:
    header = bytearray(104)
    struct.pack_into(">4sIQ", header, 0, b"QFI\xfb", version, backing)
    struct.pack_into(">I", header, 32, crypt)
    struct.pack_into(">Q", header, 72, features)
    return bytes(header)


def an_image(images: Path, more: dict[str, object] | None = None, disk: bytes | None = None) -> str:
    """Put an image there and return its digest."""
    folder = images / "runners" / "linux:1"
    folder.mkdir(parents=True)
    contents = {"kernel": b"k" * 10, "initrd": b"", "disk.qcow2": disk or a_disk()}
    files = {}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    raw = json.dumps({"version": 1, "files": files, **(more or {})}).encode()
    (folder / "image.json").write_bytes(raw)
    return hashlib.sha256(raw).hexdigest()


def always() -> bool:
    return True


def test_a_disk_of_its_own_is_taken_and_one_that_refers_to_others_is_not() -> None:
    assert wrong_with_disk(a_disk()) == ""
    assert wrong_with_disk(a_disk(features=0b11000)) == "", "zstd and small clusters are fine"
    assert "backing file" in wrong_with_disk(a_disk(backing=512))
    assert "another file" in wrong_with_disk(a_disk(features=0b100))
    assert "corrupt" in wrong_with_disk(a_disk(features=0b10))
    assert "not known" in wrong_with_disk(a_disk(features=1 << 40))
    assert "version" in wrong_with_disk(a_disk(version=2))
    assert "encrypted" in wrong_with_disk(a_disk(crypt=2))
    assert "not a qcow2" in wrong_with_disk(b"KDMV" + bytes(200))
    assert "not a qcow2" in wrong_with_disk(b"QFI\xfb")


@pytest.mark.parametrize(
    "ref",
    ["../linux", "a/../b", "/etc", "a//b", "", "a b", "a\n", "linux@sha256:1", "a/.b", "a@b@c"],
)
def test_a_reference_that_leads_elsewhere_is_refused(ref: str, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        folder_of(tmp_path, ref)


def test_an_image_is_copied_for_nobody_to_change(tmp_path: Path) -> None:
    digest = an_image(tmp_path, {"cpus": 2, "memory_mib": 64, "append": "quiet"})
    (tmp_path / "golden").mkdir()
    image = copy_image(tmp_path, f"{REF}@sha256:{digest}", tmp_path / "golden", go_on=always)
    assert (image.cpus, image.memory_mib, image.append) == (2, 64, "quiet")
    assert (tmp_path / "golden/kernel").read_bytes() == b"k" * 10
    assert (tmp_path / "golden/disk.qcow2").stat().st_mode & 0o777 == 0o400


def test_an_image_of_another_digest_is_refused(tmp_path: Path) -> None:
    an_image(tmp_path)
    with pytest.raises(Refused, match="digest"):
        read_image(tmp_path, f"{REF}@sha256:{'0' * 64}")


@pytest.mark.parametrize("content", [b"K" * 10, b"k" * 9, b"k" * 11, b""])
def test_a_file_that_was_changed_since_is_refused(tmp_path: Path, content: bytes) -> None:
    an_image(tmp_path)
    (tmp_path / "runners/linux:1/kernel").write_bytes(content)
    (tmp_path / "golden").mkdir()
    with pytest.raises(Refused, match="kernel is not what"):
        copy_image(tmp_path, REF, tmp_path / "golden", go_on=always)


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"append": "a\nb"},
        {"cpus": 0},
        {"memory_mib": -1},
        {"surprise": 1},
        {"files": {"../../x": {"sha256": "", "size": 0}}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_no_image_says_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    an_image(tmp_path, wrong)
    with pytest.raises(Refused):
        read_image(tmp_path, REF)


def test_a_disk_with_a_backing_file_makes_no_golden(tmp_path: Path) -> None:
    an_image(tmp_path, disk=a_disk(backing=512))
    (tmp_path / "golden").mkdir()
    with pytest.raises(Refused, match="backing file"):
        copy_image(tmp_path, REF, tmp_path / "golden", go_on=always)
    with pytest.raises(Refused, match="backing file"):
        check_disk(tmp_path / "runners/linux:1/disk.qcow2", REF)


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    an_image(tmp_path)
    kernel = tmp_path / "runners/linux:1/kernel"
    kernel.rename(tmp_path / "elsewhere")
    kernel.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "golden").mkdir()
    with pytest.raises(Exception, match="cannot be used"):
        copy_image(tmp_path, REF, tmp_path / "golden", go_on=always)


def test_a_copy_that_is_given_up_ends(tmp_path: Path) -> None:
    an_image(tmp_path)
    (tmp_path / "golden").mkdir()
    with pytest.raises(TimedOut) as late:
        copy_image(tmp_path, REF, tmp_path / "golden", go_on=lambda: False)
    assert late.value.op == "golden"


def test_an_image_that_is_not_there_is_not_there(tmp_path: Path) -> None:
    assert read_image(tmp_path, REF) is None
    with pytest.raises(NotThere):
        copy_image(tmp_path, REF, tmp_path, go_on=always)
