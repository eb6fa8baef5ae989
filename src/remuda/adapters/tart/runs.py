"""
The runs of VMs that this driver started: each a ``tart run`` that outlives the agent, and how it ended.

Tart's exit code is 0 for a guest that halts, for one that crashes and for one that is stopped. A crash is told by a
line in the log; a stop by the note that was made before it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import struct
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from remuda.adapters import detached
from remuda.adapters.detached import Alive, Over
from remuda.adapters.tart import texts
from remuda.model.mailbox import EXIT, LOG, READY, STARTED
from remuda.ports.vms import Ending, NoSpace, RunEnd, VmsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FIRST_MOMENTS: Final = timedelta(seconds=15)
"""A run that fails within this time never booted, unless its guest has shown itself."""
_LOG_READ_BYTES: Final = 64 * 1024
_SIGNALLED: Final = 128
_STOPPING: Final = "stopping"
_MAILBOXES: Final = ".mailboxes"
_SIGNS: Final = (READY, STARTED, EXIT, LOG)
_IS_DARWIN: Final = sys.platform == "darwin"
_FLOCK: Final = "qqihh" if _IS_DARWIN else "hhqqi4x"
"""struct flock, as 64-bit systems have it."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Everything that was started under one folder: a folder for each VM, and mailboxes beside them."""

    folder: Path

    def mailbox(self, name: str) -> Path:
        # Not in the VM's own folder: that goes with the VM, and the mailbox may go later.
        return self.folder / _MAILBOXES / name

    def log(self, name: str) -> Path:
        return self.folder / name / "log"

    def names(self) -> list[str]:
        """Return for which VMs something is kept."""
        with contextlib.suppress(FileNotFoundError):
            names = (entry.name for entry in self.folder.iterdir())
            return sorted(name for name in names if not name.startswith("."))
        return []

    async def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        with disk_told(f"{name} was not run"):
            (self._run(name) / _STOPPING).unlink(missing_ok=True)
        await detached.start(argv, folder=self._run(name), log=self.log(name), env=env)

    def look(self, name: str) -> Alive | Over | None:
        with disk_told(f"{name} was not looked at"):
            return detached.look(self._run(name))

    def is_alive(self, name: str) -> bool:
        return isinstance(self.look(name), Alive)

    async def kill(self, name: str, within_s: float) -> bool:
        """Kill all that a run started; True: nothing of it is left."""
        with disk_told(f"{name} was not killed"):
            return await detached.kill(self._run(name), within_s=within_s)

    def note_stopping(self, name: str) -> None:
        """
        Write down that we end it, before we do. A guest that halted before this is not said to be stopped.

        A disk that is too full for that is no reason to let it run.
        """
        with contextlib.suppress(OSError):
            (self._run(name) / _STOPPING).touch(mode=0o600)

    def forget(self, name: str) -> None:
        """Remove what is kept of a VM that is over. The mailbox is not ours to remove."""
        with disk_told(f"{name} is deleted, and what was kept of it is not"):
            if self._run(name).exists():
                shutil.rmtree(self._run(name))
            self.log(name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.log(name).parent.rmdir()

    def end(self, name: str) -> RunEnd | None:
        """Say how the last run of a VM ended; None: we never ran it, or it is not over."""
        over = self.look(name)
        if not isinstance(over, Over):
            return None
        log = self.log_tail(name)
        why = texts.crash(log)
        if self._was_stopped(name, over):
            return RunEnd(how=Ending.STOPPED, at=over.at)
        if why is not None:
            return RunEnd(how=Ending.CRASHED, at=over.at, why=why)
        how = self._how(name, over)
        words = texts.last_of(log) if how in {Ending.CRASHED, Ending.NEVER_BOOTED} else ""
        return RunEnd(how=how, at=over.at, why=words)

    def _how(self, name: str, over: Over) -> Ending:
        if over.code is None:
            return Ending.UNKNOWN  # whoever awaited it was killed: a halt is not to be made of that
        if over.code == 0:
            return Ending.HALTED
        if over.code > _SIGNALLED:
            return Ending.STOPPED if over.code - _SIGNALLED in _BY_PEOPLE else Ending.CRASHED
        began = _changed(self._run(name) / "pid")
        quick = began is None or over.at is None or over.at - began < FIRST_MOMENTS
        return Ending.NEVER_BOOTED if quick and not self.has_mail(name) else Ending.CRASHED

    def has_mail(self, name: str) -> bool:
        """Say whether the guest has put anything into its mailbox: then it has booted."""
        return any(os.path.lexists(self.mailbox(name) / sign) for sign in _SIGNS)

    def log_tail(self, name: str) -> bytes:
        """Return the end of what tart printed."""
        with contextlib.suppress(OSError), self.log(name).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_READ_BYTES))
            return file.read(_LOG_READ_BYTES)
        return b""

    def _was_stopped(self, name: str, over: Over) -> bool:
        noted = _changed(self._run(name) / _STOPPING)
        return noted is not None and (over.at is None or noted <= over.at)

    def _run(self, name: str) -> Path:
        return self.folder / name / "run"


_BY_PEOPLE: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP})


@contextlib.contextmanager
def disk_told(what: str) -> Iterator[None]:
    """Turn what the disk says into an error that the agent knows."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise (NoSpace if full else VmsError)(
            what,
            why=f"{error.filename or 'the disk'}: {error.strerror or type(error).__name__}",
            fix="Make room" if full else "See that the folder belongs to the agent's user",
        ) from None


def _changed(path: Path) -> datetime | None:
    with contextlib.suppress(FileNotFoundError):
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return None


def ask_guest_to_end(config: Path) -> None:
    """Press the power button of the VM whose config.json this is, if it runs."""
    if pid := lock_holder(config):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGUSR2)


def lock_holder(config: Path) -> int:
    """Return the pid of the ``tart run`` that holds a VM's config.json; 0: nobody does. So Tart itself finds it."""
    kind = (0, 0, 0, fcntl.F_WRLCK, 0) if _IS_DARWIN else (fcntl.F_WRLCK, 0, 0, 0, 0)
    with _opened(config) as file:
        if file is None:
            return 0
        raw = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_FLOCK, *kind))
    answer = struct.unpack(_FLOCK, raw)
    held, pid = (answer[3], answer[2]) if _IS_DARWIN else (answer[0], answer[4])
    return 0 if held == fcntl.F_UNLCK else int(pid)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)
