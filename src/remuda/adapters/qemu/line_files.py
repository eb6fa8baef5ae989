"""
The archives that pass over a guest's line, as files of its mailbox: whole and as they were sent, or not at all.

A line may break off anywhere, and either side may begin anew. So each archive is announced with its size and SHA-256,
and counts only once both are right. Why one does not is kept in words, for whoever waits for it. The guest is hostile:
what it sends is bounded. Every call blocks, for no longer than a local disk takes.
"""

from __future__ import annotations

import contextlib
import os
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from remuda.adapters.qemu import channel
from remuda.control.durable import UNFINISHED, remove
from remuda.control.untrusted import NotAFile, measure, read_part
from remuda.model.job_files import FILES_MAX_BYTES
from remuda.model.mailbox import FILES_IN, FILES_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_BYTES: Final = 64 * 1024
TRIES_MAX: Final = 100
"""How often reading a job's files may fail, a tick apart, before the guest is left to end its job for want of them."""
_UNFINISHED: Final = f"{UNFINISHED}{FILES_OUT}"


class FilesBack:
    """The archive that a guest sends back."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._file: int | None = None
        self._announced: channel.FilesBegin | None = None
        self._size, self._digest = 0, sha256()
        self._why, self._is_over = "", False

    def begin(self, announced: channel.FilesBegin) -> None:
        """Take it from its first byte on. What came before belongs to a try that broke off."""
        if self._is_over:
            return
        self._drop()
        self._announced, self._size, self._digest, self._why = announced, 0, sha256(), ""
        if announced.size_bytes > FILES_MAX_BYTES:
            self._why = f"they have more than {FILES_MAX_BYTES} bytes, packed"
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._kept():
            remove(self._folder, _UNFINISHED)
            self._file = os.open(_UNFINISHED, flags, 0o600, dir_fd=self._folder)

    def add(self, content: bytes) -> None:
        """Take more of it. More than was announced is none of it."""
        self._size += len(content)
        if self._file is None or self._announced is None:
            return
        if self._size > self._announced.size_bytes:
            self._drop()
            return
        self._digest.update(content)
        with self._kept():
            view = memoryview(content)
            while view:
                view = view[os.write(self._file, view) :]

    def finish(self) -> str:
        """Put it where the agent looks for it, once. Returns why not; empty: it is there, or nothing was sent."""
        if self._is_over:
            return self._why
        self._is_over = True
        announced = self._announced
        if announced is None:
            self._why = "they came over its line without their size" if self._size else ""
            return self._why
        came = (self._size, self._digest.hexdigest())
        if not self._why and came != (announced.size_bytes, announced.sha256):
            self._why = "they did not come whole over its line"
        if not self._why:
            with self._kept():
                os.rename(_UNFINISHED, FILES_OUT, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._drop()
        return self._why

    def abandon(self) -> None:
        """Keep nothing of what has not come whole."""
        self._drop()

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._drop()
            self._why = f"the host could not keep them: {error.strerror or type(error).__name__}"

    def _drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        with contextlib.suppress(OSError):
            remove(self._folder, _UNFINISHED)


class FilesThere:
    """The files that a job needs, on their way to its guest."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._size: int | None = None
        """How much the guest was told that they have; None: nothing yet."""
        self._offset, self._failures = 0, 0
        self.is_over = False
        """Whether the job may follow: they were sent, or there are none, or they cannot be had."""

    def next(self) -> bytes:
        """Return what to say next; nothing: it is over, or ask again in a while."""
        try:
            return self._begin() if self._size is None else self._more(self._size)
        except (NotAFile, OSError):
            # A read that fails is no end: they would be short. The guest runs no job without them.
            self._failures += 1
            self.is_over = self._failures >= TRIES_MAX
            return b""

    def _begin(self) -> bytes:
        found = measure(self._folder, FILES_IN)
        if found is None:
            self.is_over = True
            return b""
        digest, size = sha256(), 0
        while part := read_part(self._folder, FILES_IN, size, PIECE_BYTES):
            digest.update(part)
            size += len(part)
        self._size, self._offset = size, 0
        return channel.begin(FILES_IN, size, digest.hexdigest())

    def _more(self, size: int) -> bytes:
        if self._offset == size:
            self.is_over = True
            return channel.done(FILES_IN)
        part = read_part(
            self._folder, FILES_IN, self._offset, min(PIECE_BYTES, size - self._offset)
        )
        if not part:  # it is another file now
            self._size = None
            raise NotAFile(f"{FILES_IN} became shorter")
        self._offset += len(part)
        return channel.more(FILES_IN, part)
