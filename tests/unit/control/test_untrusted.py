"""Reading and removing what a stranger put there."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.control.durable import open_folder
from remuda.control.untrusted import (
    Bounds,
    NotAFile,
    exists,
    is_file,
    overfull,
    read_file,
    read_part,
    read_tail,
    remove_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def a_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, open_folder(path.parent) as folder:
        server.bind(f"/dev/fd/{folder}/{path.name}" if len(str(path)) > 100 else str(path))


STRANGE = [
    pytest.param(a_link, "a link", id="a link"),
    pytest.param(a_dangling_link, "a link", id="a link to nowhere"),
    pytest.param(os.mkfifo, "a pipe", id="a pipe without a writer"),
    pytest.param(os.mkdir, "a folder", id="a folder"),
    pytest.param(a_socket, "a socket", id="a socket"),
]


@pytest.mark.parametrize(("make", "kind"), STRANGE)
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], kind: str
) -> None:
    make(tmp_path / "a")
    with open_folder(tmp_path) as folder:
        assert exists(folder, "a")
        for read in (
            is_file,
            lambda f, n: read_file(f, n, 10),
            lambda f, n: read_tail(f, n, 10),
            lambda f, n: read_part(f, n, 0, 10),
        ):
            with pytest.raises(NotAFile, match=kind):
                read(folder, "a")


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        assert not exists(folder, "a")
        assert not is_file(folder, "a")
        assert read_file(folder, "a", 10) is None
        assert read_tail(folder, "a", 10) is None
        assert read_part(folder, "a", 0, 10) is None


def test_a_small_file_is_read_whole_and_a_large_one_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    with open_folder(tmp_path) as folder:
        assert read_file(folder, "a", 10) == b"x" * 10
        with pytest.raises(NotAFile, match="larger than 9 bytes"):
            read_file(folder, "a", 9)


def test_a_file_that_pretends_to_be_empty_is_bounded_too() -> None:
    # Files of Linux's /proc have no size and still something in them, as one that grows while it is read.
    process = Path(f"/proc/{os.getpid()}")
    if not process.exists():
        return
    with open_folder(process) as folder, pytest.raises(NotAFile, match="larger than 100 bytes"):
        read_file(folder, "maps", 100)


def test_the_end_of_a_huge_file_costs_as_little_as_that_of_a_small_one(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"the end")
    with open_folder(tmp_path) as folder:
        tail = read_tail(folder, "a", 100)
    assert tail is not None
    content, whole = tail
    assert len(content) == 100
    assert content.endswith(b"the end")
    assert not whole


BOUNDS = Bounds(
    bytes_max=200_000,
    entries_max=5,
    large=frozenset({"large", "larger"}),
    large_bytes_max=400_000,
)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        pytest.param({"a": 1000}, "", id="a little is fine"),
        pytest.param({"a": 300_000}, "bytes", id="too much of one"),
        pytest.param({f"{n}": 1 for n in range(6)}, "5 files", id="too many"),
        pytest.param({"a": None}, "a folder", id="a folder, whatever is in it"),
        pytest.param({"large": 300_000, "a": 1000}, "", id="what may be large"),
        pytest.param({"large": 300_000, "a": 300_000}, "more than 200000", id="beside it as ever"),
        pytest.param({"large": 250_000, "larger": 250_000}, "archives", id="too large together"),
    ],
)
def test_overfull(tmp_path: Path, files: dict[str, int | None], why: str) -> None:
    for name, size in files.items():
        if size is None:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_bytes(b"x" * size)
    with open_folder(tmp_path) as folder:
        said = overfull(folder, BOUNDS)
    assert why in said
    assert bool(said) == bool(why)


def test_a_hole_is_not_what_fills_a_disk(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    with open_folder(tmp_path) as folder:
        assert overfull(folder, BOUNDS) == ""


# --- removing ---------------------------------------------------------------------------------------------------------


def test_links_are_removed_and_not_what_they_lead_to(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "deep").mkdir(parents=True)
    (theirs / "a").write_text("stays")
    box = tmp_path / "box"
    (box / "in").mkdir(parents=True)
    (box / "folder").symlink_to(theirs)
    (box / "in/file").symlink_to(theirs / "a")
    os.mkfifo(box / "in/pipe")
    remove_tree(box)
    assert not box.exists()
    assert (theirs / "a").read_text() == "stays"
    assert (theirs / "deep").is_dir()


def test_a_tree_deeper_than_the_stack_goes(tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    here = os.open(box, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("x", dir_fd=here)
        deeper = os.open("x", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    remove_tree(box)
    assert not box.exists()


def test_names_that_look_like_ours_do_not_confuse_it(tmp_path: Path) -> None:
    box = tmp_path / "box"
    for outer in ("a", "b", ".remuda-moved-0", ".remuda-moved-1"):
        for inner in ("a", ".remuda-moved-0", ".remuda-moved-2"):
            (box / outer / inner / "x").mkdir(parents=True)
            (box / outer / inner / "file").touch()
    remove_tree(box)
    assert not box.exists()


def test_what_is_gone_is_removed(tmp_path: Path) -> None:
    remove_tree(tmp_path / "none")


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/a").touch()
    (tmp_path / "box").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="box"):
        remove_tree(tmp_path / "box")
    assert (tmp_path / "theirs/a").exists()


def test_folders_that_were_locked_go(tmp_path: Path) -> None:
    box = tmp_path / "box"
    (box / "in/deep").mkdir(parents=True)
    (box / "in/deep/file").touch()
    for folder in (box / "in/deep", box / "in", box):
        folder.chmod(0)
    remove_as_an_ordinary_user(box)
    assert not box.exists()


def remove_as_an_ordinary_user(box: Path) -> None:
    """As root no lock is felt: hand the tree to somebody else and do it in their name."""
    if os.geteuid() != 0:
        remove_tree(box)
        return
    nobody = 65534
    parents = [box.parent, *box.parent.parents]
    kept = {p: p.stat().st_mode for p in parents}
    for path in (box / "in/deep/file", box / "in/deep", box / "in", box, box.parent):
        os.chown(path, nobody, nobody)
    child = os.fork()
    if child == 0:
        os.chroot(box.parent)  # its parents may be closed to others
        os.setgid(nobody)
        os.setuid(nobody)
        code = 1
        try:
            remove_tree(Path("/box"))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    os.chown(box.parent, 0, 0)
    assert {p: p.stat().st_mode for p in parents} == kept
    assert os.waitstatus_to_exitcode(status) == 0
