"""
The mailbox between whoever fetches a job and whoever runs it, as a folder that both see. The writing side.

A reader sees a whole file or none: files are written under another name, made durable, and renamed. There is one job in
a mailbox's life. Nothing in it is followed: what stands there may have been put there by somebody else.
"""

from __future__ import annotations

import contextlib
import os
from enum import Enum
from typing import TYPE_CHECKING, Final

from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

JOB: Final = "job.json"
STOP: Final = "stop"
STARTED: Final = "started"
EXIT: Final = "exit.json"
_UNFINISHED: Final = ".remuda-unfinished-"


class MailboxError(RemudaError):
    """The mailbox cannot be used."""


class Holds(Enum):
    """What a mailbox holds."""

    NOTHING = "nothing"
    JOB = "a job"
    STOP = "a stop"
    SPENT = "a job that was taken out of it"


class MailboxFolder:
    """A folder on this machine."""

    def __init__(self, folder: Path, *, sync: Callable[[int], None] = os.fsync) -> None:
        self._folder = folder
        self._sync = sync
        """Makes a file or a folder durable, by its descriptor."""

    def holds(self) -> Holds:
        """Say what is there. A name is enough: whatever bears it, no second job is put next to it."""
        with self._usable("looked at"):
            names = {entry.name for entry in self._folder.iterdir()}
        if JOB in names:
            return Holds.JOB
        if names & {STARTED, EXIT}:
            return Holds.SPENT
        return Holds.STOP if STOP in names else Holds.NOTHING

    def sweep(self) -> None:
        """Remove what a writer that was killed left behind: it may hold a job config."""
        with self._usable("swept"):
            for entry in sorted(self._folder.iterdir()):
                if entry.name.startswith(_UNFINISHED):
                    entry.unlink()

    def put_job(self, document: bytes) -> None:
        """Put the one job in, for the owner of the folder's files to read."""
        if self.holds() is not Holds.NOTHING:
            raise MailboxError(
                "The job was not put into the mailbox",
                why=f"it holds {self.holds().value} already",
                fix="This is a bug: a runner takes one job. Report it",
            )
        self._write(JOB, document)

    def put_stop(self) -> None:
        """Tell the runner to end without a job."""
        self._write(STOP, b"")

    def _write(self, name: str, content: bytes) -> None:
        unfinished = self._folder / f"{_UNFINISHED}{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._usable("written to"):
            unfinished.unlink(missing_ok=True)
            file = os.open(unfinished, flags, 0o600)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(content)
                    stream.flush()
                    self._sync(stream.fileno())
                unfinished.rename(self._folder / name)
            except OSError:
                with contextlib.suppress(OSError):
                    unfinished.unlink()
                raise
            self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._sync(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _usable(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise MailboxError(
                f"The mailbox {self._folder} cannot be {done}",
                why=error.strerror or type(error).__name__,
                fix="Check that the volume is mounted there, is not full, and belongs to this user",
            ) from None
