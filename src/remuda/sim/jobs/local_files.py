"""Archives of local jobs in memory. No method awaits between its first read and its last write, so each is atomic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remuda.ports.local_files import MAKES_ROOM_AFTER, FileRefusal, StoredFile, Way

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from remuda.ports.local_files import Forgotten, NewFile
    from remuda.ports.local_jobs import LocalJob


@dataclass(slots=True)
class _Kept:
    file: StoredFile
    touched_at: datetime
    data: bytes = b""


class MemoryLocalFiles:
    """Implements ``remuda.ports.local_files.LocalFiles``."""

    def __init__(
        self, job: Callable[[str], LocalJob | None], *, total_max_bytes: int = 2**40
    ) -> None:
        self._job = job
        """Finds a local job: with one that is forgotten go its archives."""
        self._total_max_bytes = total_max_bytes
        self._files: dict[str, _Kept] = {}

    async def append(
        self, file: NewFile, offset: int, data: bytes, *, at: datetime
    ) -> int | FileRefusal:
        found = self._begun(file, at)
        if isinstance(found, FileRefusal):
            return found
        if offset + len(data) > file.size_bytes:
            return FileRefusal.OTHER_SIZE
        kept = len(found.data)
        fresh = data[kept - offset :] if offset <= kept else b""
        if fresh:
            found.data += fresh
            found.touched_at = at
            found.file = replace(found.file, kept_bytes=len(found.data))
        return len(found.data)

    def _begun(self, file: NewFile, at: datetime) -> _Kept | FileRefusal:
        found = self._live().get(file.file_id)
        if found is None:
            if not self._has_room(file.size_bytes, at):
                return FileRefusal.NO_ROOM
            new = StoredFile(
                file_id=file.file_id,
                way=file.way,
                owner=file.owner,
                size_bytes=file.size_bytes,
                kept_bytes=0,
                job_id=file.job_id,
            )
            found = self._files[file.file_id] = _Kept(new, at)
        if (found.file.owner, found.file.way) != (file.owner, file.way):
            return FileRefusal.NOT_YOURS
        return found if found.file.size_bytes == file.size_bytes else FileRefusal.OTHER_SIZE

    def _has_room(self, size: int, at: datetime) -> bool:
        """Say whether there is room for so much more; make some if need be, and if that is enough."""
        makes_room = sorted(
            (kept.file.fetched_at, file_id)
            for file_id, kept in self._files.items()
            if kept.file.fetched_at is not None and self._was_fetched(kept, at - MAKES_ROOM_AFTER)
        )
        over = self._total() + size - self._total_max_bytes
        if over > sum(self._files[file_id].file.size_bytes for _, file_id in makes_room):
            return False
        while self._total() + size > self._total_max_bytes:
            del self._files[makes_room.pop(0)[1]]
        return True

    def _total(self) -> int:
        return sum(kept.file.size_bytes for kept in self._files.values())

    def _was_fetched(self, kept: _Kept, before: datetime) -> bool:
        job = self._job(kept.file.job_id)
        is_over = job is not None and job.end is not None
        return is_over and kept.file.fetched_at is not None and kept.file.fetched_at < before

    def _live(self) -> dict[str, _Kept]:
        gone = [
            file_id
            for file_id, kept in self._files.items()
            if kept.file.job_id and self._job(kept.file.job_id) is None
        ]
        for file_id in gone:
            del self._files[file_id]
        return self._files

    async def get(self, file_id: str) -> StoredFile | None:
        found = self._live().get(file_id)
        return None if found is None else found.file

    async def of_job(self, job_id: str, way: Way) -> StoredFile | None:
        of_it = (kept.file for kept in self._live().values() if kept.file.job_id == job_id)
        return next((file for file in of_it if file.way is way), None)

    async def take(self, file_id: str, *, owner: str, job_id: str) -> bool:
        found = self._live().get(file_id)
        if found is None or not found.file.is_whole:
            return False
        file = found.file
        if file.owner != owner or file.way is not Way.IN or file.job_id not in {"", job_id}:
            return False
        found.file = replace(file, job_id=job_id)
        return True

    async def read(self, file_id: str, offset: int, *, limit: int) -> bytes:
        found = self._live().get(file_id)
        return b"" if found is None else found.data[offset : offset + limit]

    async def fetched(self, file_id: str, pod_uid: str) -> None:
        found = self._live().get(file_id)
        if found is not None:
            found.file = replace(found.file, fetched_by=pod_uid)

    async def given(self, file_id: str, *, at: datetime) -> None:
        found = self._live().get(file_id)
        if found is not None and found.file.way is Way.OUT:
            found.file = replace(found.file, fetched_at=at)

    async def forget(self, before: Forgotten, *, limit: int) -> int:
        old = sorted(
            (kept.touched_at, file_id)
            for file_id, kept in self._live().items()
            if self._is_old(kept, before)
        )[:limit]
        for _, file_id in old:
            del self._files[file_id]
        return len(old)

    def _is_old(self, kept: _Kept, before: Forgotten) -> bool:
        if not kept.file.job_id:
            return kept.touched_at < before.untaken
        job = self._job(kept.file.job_id)
        if job is None or job.end is None:
            return False
        if kept.file.way is Way.IN or self._was_fetched(kept, before.fetched):
            return True
        return job.end.at < before.ended
