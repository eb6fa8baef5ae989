"""
Reading and removing what somebody else may have put into a folder: no links followed, no pipes, no more than asked for.

Names are looked up in an open folder, so nothing outside it is ever touched. Every call blocks, and none for long: what
could make it wait (a pipe, a device) is refused before it is opened.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.control.durable import names_in, open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotAFile(Exception):
    """What bears the name is no ordinary file, is too large, or may not be read. The text says which."""


def exists(folder: int, name: str) -> bool:
    """Say whether anything bears the name."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def is_file(folder: int, name: str) -> bool:
    """Say whether an ordinary file of that name is there. Anything else raises NotAFile."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile(f"{name} is {_kind(found.st_mode)}, not a file")
    return True


def read_file(folder: int, name: str, size_max: int) -> bytes | None:
    """Return all of a small file; None: there is none. What is larger is refused, not cut."""
    with _opened(folder, name) as file:
        if file is None:
            return None
        content = _read(file, size_max + 1)  # its size says nothing: it may grow while it is read
    if len(content) > size_max:
        raise NotAFile(f"{name} is larger than {size_max} bytes")
    return content


def read_tail(folder: int, name: str, size_max: int) -> tuple[bytes, bool] | None:
    """Return the end of a file of any size, and whether that is all of it; None: there is none."""
    with _opened(folder, name) as file:
        if file is None:
            return None
        size = os.fstat(file).st_size
        with contextlib.suppress(OSError):
            os.lseek(file, max(0, size - size_max), os.SEEK_SET)
        return _read(file, size_max), size <= size_max


def read_part(folder: int, name: str, offset: int, size_max: int) -> bytes | None:
    """Return some of a file of any size, from a place in it: nothing, if it is shorter; None: there is none."""
    with _opened(folder, name) as file:
        if file is None:
            return None
        os.lseek(file, offset, os.SEEK_SET)
        return _read(file, size_max)


@dataclass(frozen=True, slots=True)
class Measured:
    """How large a file is, and when it was last written. Both are the word of whoever wrote it."""

    size_bytes: int
    modified_s: float


def measure(folder: int, name: str) -> Measured | None:
    """Measure a file without opening it; None: there is none."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile(f"{name} is {_kind(found.st_mode)}, not a file")
    return Measured(found.st_size, found.st_mtime)


@contextlib.contextmanager
def _opened(folder: int, name: str) -> Iterator[int | None]:
    if not is_file(folder, name):
        yield None
        return
    try:
        file = os.open(name, _FLAGS, dir_fd=folder)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise NotAFile(f"{name} cannot be opened ({error.strerror})") from None
    try:
        # It may have been another thing when it was looked at.
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise NotAFile(f"{name} is {_kind(os.fstat(file).st_mode)}, not a file")
        yield file
    finally:
        os.close(file)


def _read(file: int, size_max: int) -> bytes:
    pieces: list[bytes] = []
    left = size_max
    while left > 0:
        piece = os.read(file, min(left, 1 << 20))
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFDIR: "a folder",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much somebody may put into a folder of ours."""

    bytes_max: int
    entries_max: int
    large: frozenset[str] = frozenset()
    """Names of files that do not count against ``bytes_max``, as they have a bound of their own."""
    large_bytes_max: int = 0
    """How much all of those may have together."""


def overfull(folder: int, bounds: Bounds) -> str:
    """Say why a folder holds more than it may; empty: it does not. A folder in it is too much, whatever it holds."""
    size = large = entries = 0
    with os.scandir(folder) as found:
        for entry in found:
            entries += 1
            if entries > bounds.entries_max:
                return f"it holds more than {bounds.entries_max} files"
            with contextlib.suppress(FileNotFoundError):
                seen = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(seen.st_mode):
                    return f"it holds a folder, {_shown(entry.name)}"
                if entry.name in bounds.large:
                    large += seen.st_blocks * 512
                else:
                    size += seen.st_blocks * 512
    if size > bounds.bytes_max:
        return f"it holds more than {bounds.bytes_max} bytes"
    return (
        f"its archives have more than {bounds.large_bytes_max} bytes"
        if large > bounds.large_bytes_max
        else ""
    )


def _shown(name: str) -> str:
    return ascii(name)[:80]


def remove_tree(path: Path) -> None:
    """
    Remove a folder and all that somebody put into it, however deep and whatever its rights. Gone already is success.

    Folders are moved up before they are emptied: depth costs neither stack nor open files. A link to a folder is
    refused. For folders that nobody writes into any more.
    """
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            path.chmod(0o700)  # whoever wrote into it may have locked it, too
        with open_folder(path) as root:
            _empty(root)
        path.rmdir()
    except FileNotFoundError:
        return


def _empty(root: int) -> None:
    moved = 0
    while names := names_in(root):
        for name in names:
            if not _is_folder(root, name):
                os.unlink(name, dir_fd=root)
                continue
            os.chmod(name, 0o700, dir_fd=root)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
            try:
                moved = _empty_one(inner, root, moved)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=root)


def _empty_one(inner: int, root: int, moved: int) -> int:
    """Empty one folder: its files go, its folders move up under names that nobody else has."""
    for name in names_in(inner):
        if not _is_folder(inner, name):
            os.unlink(name, dir_fd=inner)
            continue
        os.chmod(name, 0o700, dir_fd=inner)  # a folder moves only if it may be written
        while exists(root, f".remuda-moved-{moved}"):
            moved += 1
        os.rename(name, f".remuda-moved-{moved}", src_dir_fd=inner, dst_dir_fd=root)
    return moved


def _is_folder(folder: int, name: str) -> bool:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return stat.S_ISDIR(found.st_mode)
