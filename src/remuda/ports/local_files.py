"""
Archives on their way to a runner, and back from one. Kept in the database, so that any replica can serve them.

An archive comes in pieces that may be sent again; once it is whole it never changes. What is in it is nobody's concern
here: it is hostile wherever it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from datetime import datetime

MAKES_ROOM_AFTER: Final = timedelta(seconds=30)
"""So long what was fetched is kept however little room there is: who fetched it may have to do so again."""


class Way(StrEnum):
    """Where an archive goes."""

    IN = "in"
    """To a runner. Gone when its job is over."""
    OUT = "out"
    """Back from one. Kept for a while after that, and for a moment after somebody fetched it."""


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
    fetched_at: datetime | None = None
    """When somebody last fetched all of what came back."""

    @property
    def is_whole(self) -> bool:
        return self.kept_bytes == self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What is older than these goes."""

    untaken: datetime
    """Uploads that no job took, by when they were last touched."""
    ended: datetime
    """What came back, by when its job ended."""
    fetched: datetime
    """What came back from a job that is over, by when it was last fetched."""


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

        Where a new archive finds no room, what came back and was fetched a while ago makes some, what was fetched first
        first. What nobody has fetched never does.
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

    async def given(self, file_id: str, *, at: datetime) -> None:
        """Note that somebody fetched all of what came back."""
        ...

    async def forget(self, before: Forgotten, *, limit: int) -> int:
        """
        Forget archives that nobody needs any more. Returns how many.

        Uploads whose job is over, or that no job took and nobody touched for long; what came back from jobs that ended
        long ago, or are over and somebody fetched it. With a job that is forgotten its archives go at once.
        """
        ...
