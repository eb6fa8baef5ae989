"""A job's files on their way to its guest: whole, or the guest is never told that they are there."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.qemu.channel import begin, done, more
from remuda.adapters.qemu.line_files import PIECE_BYTES, TRIES_MAX, FilesThere
from remuda.model.mailbox import FILES_IN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = os.urandom(PIECE_BYTES + 10)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[FilesThere]:
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield FilesThere(folder)
    os.close(folder)


def announced(content: bytes) -> bytes:
    return begin(FILES_IN, len(content), sha256(content).hexdigest())


def rest_of(there: FilesThere) -> bytes:
    """Return all that is still said; at times there is nothing to say."""
    said = b""
    while not there.is_over:
        said += there.next()
    return said


def all_of(content: bytes) -> bytes:
    pieces = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
    sent = b"".join(more(FILES_IN, piece) for piece in pieces)
    return announced(content) + sent + done(FILES_IN)


def test_a_job_without_files_waits_for_none(there: FilesThere) -> None:
    assert there.next() == b""
    assert there.is_over


@pytest.mark.parametrize("content", [CONTENT, b"x" * PIECE_BYTES, b""])
def test_files_are_announced_and_sent(there: FilesThere, content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILES_IN).write_bytes(content)
    assert rest_of(there) == all_of(content)


@pytest.mark.parametrize("begun", [0, 1, 2])
def test_a_read_that_fails_is_no_end_and_is_made_again(
    there: FilesThere, begun: int, tmp_path: Path
) -> None:
    file, away = tmp_path / FILES_IN, tmp_path / "away"
    file.write_bytes(CONTENT)
    said = b"".join(there.next() for _ in range(begun))
    file.rename(away)
    file.mkdir()  # stands for a disk that cannot be read
    assert (there.next(), there.is_over) == (b"", False)
    file.rmdir()
    away.rename(file)
    assert said + rest_of(there) == all_of(CONTENT)


def test_files_that_became_shorter_are_begun_anew(there: FilesThere, tmp_path: Path) -> None:
    (tmp_path / FILES_IN).write_bytes(CONTENT)
    for _ in range(2):
        there.next()
    (tmp_path / FILES_IN).write_bytes(b"short")
    assert rest_of(there) == all_of(b"short")


def test_files_that_can_never_be_read_are_not_said_to_be_there(
    there: FilesThere, tmp_path: Path
) -> None:
    (tmp_path / FILES_IN).mkdir()
    said = [there.next() for _ in range(TRIES_MAX)]
    assert (set(said), there.is_over) == ({b""}, True)
