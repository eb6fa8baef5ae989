"""
Files that are there whole or not at all, and stay there once they are: for what must outlive a crash.

A file is written under another name, made durable, renamed, and then its folder is made durable. A process that is
killed at any point leaves the old file or the new one, and perhaps an unfinished one, whose name says so. Names are
looked up in an open folder and never followed. Every call blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from remuda.model.errors import RemudaError

UNFINISHED: Final = ".remuda-unfinished-"
"""How the name of a file begins that is being written."""


def make_durable(file: int) -> None:
    """Have a file or a folder reach the disk itself. macOS has its own command for that; not every disk knows it."""
    through = getattr(fcntl, "F_FULLFSYNC", None)
    if through is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(file, through)
            return
    os.fsync(file)


@contextlib.contextmanager
def usable(error: type[RemudaError], what: str, fix: str) -> Iterator[None]:
    """Say what could not be done with a folder, where the system only says an error's name."""
    try:
        yield
    except OSError as fault:
        raise error(what, why=fault.strerror or type(fault).__name__, fix=fix) from None


@contextlib.contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Open a folder, so that names are looked up in it and nowhere else. A link to one is refused."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def write_whole(
    folder: int, name: str, content: bytes, *, sync: Callable[[int], None] = make_durable
) -> None:
    """Put a file of that name there, for this user alone, over whatever bears the name."""
    unfinished = f"{UNFINISHED}{name}"
    remove(folder, unfinished)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(unfinished, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            sync(stream.fileno())
        os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise
    sync(folder)


def remove(folder: int, name: str) -> bool:
    """Remove a file, or a link itself; False: there was none."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def names_in(folder: int) -> list[str]:
    """Return the names of all that is in an open folder, sorted."""
    return sorted(os.listdir(folder))


def sweep(folder: int) -> None:
    """Remove what writers that were killed left behind."""
    for name in names_in(folder):
        if name.startswith(UNFINISHED):
            remove(folder, name)
