"""Files that are whole or not there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from remuda.control.durable import make_durable, names_in, open_folder, remove, sweep, write_whole

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_replaces_whatever_bears_its_name(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "a").symlink_to(tmp_path / "theirs")
    with open_folder(tmp_path) as folder:
        write_whole(folder, "a", b"ours")
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"ours"


def test_a_file_is_made_durable_before_it_shows_and_its_folder_after(tmp_path: Path) -> None:
    shows: list[bool] = []
    with open_folder(tmp_path) as folder:
        write_whole(folder, "a", b"", sync=lambda _: shows.append((tmp_path / "a").exists()))
    assert shows == [False, True]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with open_folder(tmp_path) as folder, pytest.raises(OSError, match="Input/output"):
        write_whole(folder, "a", b"new", sync=fails)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": "old"}


def test_what_stands_under_the_unfinished_name_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / ".remuda-unfinished-a").symlink_to(tmp_path / "theirs")
    with open_folder(tmp_path) as folder:
        write_whole(folder, "a", b"ours")
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_link_to_a_folder_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="link"), open_folder(tmp_path / "link"):
        pass


def test_an_open_folder_is_that_folder_whatever_its_name_becomes(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with open_folder(tmp_path / "one") as folder:
        (tmp_path / "one").rename(tmp_path / "two")
        (tmp_path / "one").mkdir()
        write_whole(folder, "a", b"")
    assert [p.name for p in (tmp_path / "two").iterdir()] == ["a"]
    assert list((tmp_path / "one").iterdir()) == []


def test_removing_says_whether_there_was_anything(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("nowhere")
    with open_folder(tmp_path) as folder:
        assert remove(folder, "a")
        assert not remove(folder, "a")
        assert names_in(folder) == []


def test_only_the_unfinished_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".remuda-unfinished-a").touch()
    (tmp_path / "a").touch()
    with open_folder(tmp_path) as folder:
        sweep(folder)
        assert names_in(folder) == ["a"]


def test_files_and_folders_can_be_made_durable(tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        make_durable(folder)
    with (tmp_path / "a").open("wb") as file:
        make_durable(file.fileno())
    with pytest.raises(OSError, match="Bad file"):
        make_durable(os.open(tmp_path, os.O_RDONLY) + 100)
