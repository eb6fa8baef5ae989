"""
A VM's disk as a sparse file, written in ranges by several layers at once.

It writes where it is told to and nowhere else. Whether the bytes are the right ones is known by the caller's digest.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from typing import TYPE_CHECKING, Final, Self

from remuda.adapters.tart_image.errors import FolderUnusable, NoSpace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

HOLE_BYTES: Final = 4 * 1024 * 1024
"""Zeros of this length, at a multiple of it, are left out. As Tart does it."""
_ZEROS: Final = bytes(HOLE_BYTES)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextlib.contextmanager
def usable(path: Path, done: str) -> Iterator[None]:
    """Turn what the system says about a file into something a person can act on."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        if error.errno in _FULL:
            raise NoSpace(
                f"{path.name} cannot be {done}", why=why, fix="Free space on the host's disk"
            ) from None
        raise FolderUnusable(
            f"{path} cannot be {done}", why=why, fix="Check the folder and whose it is"
        ) from None


class Disk:
    """The file, open. Its length is fixed from the start, so that a range may be written in any order."""

    def __init__(self, path: Path, length: int) -> None:
        self._path, self._length = path, length
        self._file = -1
        self._had_content = False

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with usable(self._path, "opened"):
            self._file = os.open(self._path, flags, 0o600)
            self._had_content = os.fstat(self._file).st_size > 0
            os.ftruncate(self._file, self._length)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # First the number, then the file: nobody may write to what gets this number next.
        closing, self._file = self._file, -1
        os.close(closing)

    @property
    def had_content(self) -> bool:
        """Whether an earlier try left something: what it left may be good, and zeros must then be written."""
        return self._had_content

    def digest(self, start: int, length: int) -> str:
        """Return the digest of a range as it stands in the file."""
        seen = hashlib.sha256()
        with usable(self._path, "read"):
            while length:
                piece = os.pread(self._file, min(length, HOLE_BYTES), start)
                if not piece:
                    break
                seen.update(piece)
                start, length = start + len(piece), length - len(piece)
        return f"sha256:{seen.hexdigest()}"

    def write(self, at: int, piece: bytes | bytearray) -> None:
        with usable(self._path, "written"):
            if piece == _ZEROS[: len(piece)] and self._is_zero(at, len(piece)):
                return
            view = memoryview(piece)
            while view:
                written = os.pwrite(self._file, view, at)
                view, at = view[written:], at + written

    def sync(self) -> None:
        with usable(self._path, "made durable"):
            os.fsync(self._file)

    def _is_zero(self, at: int, length: int) -> bool:
        if not self._had_content:
            return True
        return os.pread(self._file, length, at) == _ZEROS[:length]


class RangeWriter:
    """Gathers small pieces of one range into writes that are worth a call, and holes that are worth leaving out."""

    def __init__(self, disk: Disk, start: int) -> None:
        self._disk, self._at = disk, start
        self._gathered = bytearray()

    def write(self, piece: bytes) -> None:
        self._gathered += piece
        # Up to the next multiple, so that a zero block of the file is never half in one write.
        while len(self._gathered) >= (size := HOLE_BYTES - self._at % HOLE_BYTES):
            self._put(size)

    def finish(self) -> None:
        if self._gathered:
            self._put(len(self._gathered))

    def _put(self, size: int) -> None:
        # Blocks mostly end where a write ends: then nothing is copied.
        piece, self._gathered = self._gathered, self._gathered[size:]
        del piece[size:]
        self._disk.write(self._at, piece)
        self._at += size
