"""
Archives on their way to a runner, and back from one. Kept in the database, so that any replica can serve them.

An archive comes in pieces that may be sent again; once it is whole it never changes. What is in it is nobody's concern
here: it is hostile wherever it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


class Way(StrEnum):
    """Where an archive goes."""

    IN = "in"
    """To a runner. Gone when its job is over."""
    OUT = "out"
    """Back from one. Kept for a while after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """What a sender says of an archive with each of its pieces."""

    file_id: str
    way: Way
    owner: str
    """Who sends it: nobody else adds to it."""
    size_bytes: int
    job_id: str = ""
    """Empty: no job has taken it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """An archive, or as much of it as has come."""

    file_id: str
    way: Way
    owner: str
    size_bytes: int
    kept_bytes: int
    job_id: str = ""
    fetched_by: str = ""
    """The UID of the last Pod that read it to its end."""

    @property
    def is_whole(self) -> bool:
        return self.kept_bytes == self.size_bytes


class FileRefusal(StrEnum):
    """Why a piece was not taken."""

    NOT_YOURS = "not_yours"
    """Somebody else sends an archive of this name."""
    OTHER_SIZE = "other_size"
    """It was to have another size, or the piece does not fit in."""
    NO_ROOM = "no_room"
    """All archives together have as many bytes as they may."""


class LocalFiles(Protocol):
    """The archives of local jobs. Every error is a DatabaseError; each call may be repeated."""

    async def append(
        self, file: NewFile, offset: int, data: bytes, *, at: datetime
    ) -> int | FileRefusal:
        """
        Keep a piece that begins at ``offset``; return where to go on.

        What is there already is not written twice. A gap is refused: the answer is then less than ``offset``.
        """
        ...

    async def get(self, file_id: str) -> StoredFile | None: ...

    async def of_job(self, job_id: str, way: Way) -> StoredFile | None: ...

    async def take(self, file_id: str, *, owner: str, job_id: str) -> bool:
        """Bind a whole upload of its owner to a job that is kept, for good; idempotent."""
        ...

    async def read(self, file_id: str, offset: int, *, limit: int) -> bytes:
        """Return some of an archive: nothing past its end, or if there is none."""
        ...

    async def fetched(self, file_id: str, pod_uid: str) -> None:
        """Note that a Pod has read all of it."""
        ...

    async def forget(self, *, untaken_before: datetime, ended_before: datetime, limit: int) -> int:
        """
        Forget archives that nobody needs any more. Returns how many.

        Uploads whose job is over, or that no job took and nobody touched since ``untaken_before``; what came back from
        jobs that ended before ``ended_before``. With a job that is forgotten its archives go at once.
        """
        ...
