"""
Tart's locks: flock on folders, and a POSIX lock on config.json whose holder is the VM's process.

A POSIX lock is gone when its process closes any descriptor of that file: whoever holds one must not open it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# struct flock, as 64-bit systems have it.
_IS_DARWIN = sys.platform == "darwin"
_FLOCK = "qqihh" if _IS_DARWIN else "hhqqi4x"


def lock_holder(config: Path) -> int:
    """Return the pid that holds the lock of a config.json; 0 if nobody does."""
    question = struct.pack(
        _FLOCK, *((0, 0, 0, fcntl.F_WRLCK, 0) if _IS_DARWIN else (fcntl.F_WRLCK, 0, 0, 0, 0))
    )
    try:
        file = os.open(config, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        answer = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, question))
    finally:
        os.close(file)
    kind, pid = (answer[3], answer[2]) if _IS_DARWIN else (answer[0], answer[4])
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def take_config_lock(config: Path) -> int | None:
    """Take the lock that says: this VM runs. Returns the descriptor to keep; nothing if it is taken."""
    file = os.open(config, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


@contextlib.contextmanager
def folder_lock(folder: Path, waiting: str = "") -> Iterator[None]:
    """Hold a folder's flock; say so if it must be waited for."""
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                print(waiting, flush=True)  # noqa: T201 - tart says so on stdout
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def is_locked(folder: Path) -> bool:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
