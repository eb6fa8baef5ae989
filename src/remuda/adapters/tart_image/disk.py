"""
A VM's disk as a sparse file, written in ranges by several layers at once.

It writes where it is told to and nowhere else. Whether the bytes are the right ones is known by the caller's digest.

Where the system can, whole pages are written around its cache. A disk is often larger than memory: through the cache it
would push out what the VMs of the host live on, cost a copy of all its bytes, and wait to be made durable at the end.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
import threading
from typing import TYPE_CHECKING, Final, Self

from remuda.adapters.tart_image.errors import FolderUnusable, NoSpace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

HOLE_BYTES: Final = 1024 * 1024
"""Zeros of this length, at a multiple of it, are left out. Tart does so with four times as many."""
PIECES_MAX: Final = 256
"""How many pieces go into one write: no more than any system takes at once."""
_PAGE_BYTES: Final = 4096
"""What goes around the cache begins and ends at a multiple of this, in the file and in memory."""
_AROUND: Final[int] = getattr(os, "O_DIRECT", 0)
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
        self._writing = threading.Lock()
        self._around = -1
        """The same file, around the cache; none, where that cannot be."""
        self._pages = mmap.mmap(-1, HOLE_BYTES)

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with usable(self._path, "opened"):
            self._file = os.open(self._path, flags, 0o600)
            self._had_content = os.fstat(self._file).st_size > 0
            os.ftruncate(self._file, self._length)
        if _AROUND:
            with contextlib.suppress(OSError):  # not every file system knows it
                self._around = os.open(
                    self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | _AROUND
                )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # First the number, then the file: nobody may write to what gets this number next.
        closing, self._file, self._around = (self._file, self._around), -1, -1
        for file in closing:
            if file >= 0:
                os.close(file)
        self._pages.close()

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

    def write(self, at: int, pieces: Sequence[bytes]) -> None:
        """Write pieces one after the other, or nothing where all of them are zeros and the file has them already."""
        size = sum(map(len, pieces))
        with usable(self._path, "written"):
            if all(map(_is_zero, pieces)) and self._has_zeros(at, size):
                return
            # One at a time: others would wait in the system for the lock of the file, and burn a core each.
            with self._writing:
                written = self._write_around(at, pieces, size) or os.pwritev(self._file, pieces, at)
                while written < size:  # as on a disk that becomes full: the next call says so
                    rest = memoryview(b"".join(pieces))[written:]
                    written += os.pwrite(self._file, rest, at + written)

    def sync(self) -> None:
        with usable(self._path, "made durable"):
            os.fsync(self._file)

    def _write_around(self, at: int, pieces: Sequence[bytes], size: int) -> int:
        """Write whole pages around the cache; nothing, where they are not whole or that cannot be."""
        if self._around < 0 or size > HOLE_BYTES or at % _PAGE_BYTES or size % _PAGE_BYTES:
            return 0
        self._pages.seek(0)
        for piece in pieces:
            self._pages.write(piece)
        try:
            with memoryview(self._pages)[:size] as whole:
                return os.pwrite(self._around, whole, at)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            os.close(self._around)  # opened, but not for writes like these
            self._around = -1
            return 0

    def _has_zeros(self, at: int, length: int) -> bool:
        return not self._had_content or _is_zero(os.pread(self._file, length, at))


class RangeWriter:
    """Gathers small pieces of one range into writes that are worth a call, and holes that are worth leaving out."""

    def __init__(self, disk: Disk, start: int) -> None:
        self._disk, self._at = disk, start
        self._gathered: list[bytes] = []
        self._room = _room(start)

    def write(self, piece: bytes) -> None:
        # Up to the next multiple, so that a zero block of the file is never half in one write.
        while len(piece) >= self._room:
            head, piece = piece[: self._room], piece[self._room :]
            self._gather(head)
            self.finish()
        if piece:
            self._gather(piece)
        if len(self._gathered) >= PIECES_MAX:
            self.finish()

    def finish(self) -> None:
        """Write what was gathered."""
        if self._gathered:
            self._disk.write(self._at, self._gathered)
            self._at += sum(map(len, self._gathered))
            self._gathered, self._room = [], _room(self._at)

    def _gather(self, piece: bytes) -> None:
        self._gathered.append(piece)
        self._room -= len(piece)


def _room(at: int) -> int:
    """Return how many bytes there are up to the next multiple."""
    return HOLE_BYTES - at % HOLE_BYTES


def _is_zero(piece: bytes) -> bool:
    return _ZEROS.startswith(piece)
