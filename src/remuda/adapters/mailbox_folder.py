"""
The mailbox between whoever fetches a job and whoever runs it, as a folder that both see. The writing side.

A reader sees a whole file or none: files are written under another name, made durable, and renamed. There is one job in
a mailbox's life. Nothing in it is followed: what stands there may have been put there by somebody else.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from remuda.control.durable import make_durable, names_in, open_folder, sweep, write_whole
from remuda.model.errors import RemudaError
from remuda.model.mailbox import JOB, STOP, Holds, holding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class MailboxError(RemudaError):
    """The mailbox cannot be used."""


class MailboxFolder:
    """A folder on this machine."""

    def __init__(self, folder: Path, *, sync: Callable[[int], None] = make_durable) -> None:
        self._folder = folder.resolve()
        self._sync = sync
        """Makes a file or a folder durable, by its descriptor."""

    def holds(self) -> Holds:
        """Say what is there."""
        with self._opened("looked at") as folder:
            return holding(names_in(folder))

    def sweep(self) -> None:
        """Remove what a writer that was killed left behind: it may hold a job config."""
        with self._opened("swept") as folder:
            sweep(folder)

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
        with self._opened("written to") as folder:
            write_whole(folder, name, content, sync=self._sync)

    @contextlib.contextmanager
    def _opened(self, done: str) -> Iterator[int]:
        try:
            with open_folder(self._folder) as folder:
                yield folder
        except OSError as error:
            raise MailboxError(
                f"The mailbox {self._folder} cannot be {done}",
                why=error.strerror or type(error).__name__,
                fix="Check that the volume is mounted there, is not full, and belongs to this user",
            ) from None
