"""Archives of local jobs on PostgreSQL. ``remuda.sim.jobs.local_files`` is its twin in memory; one suite holds both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.adapters.postgres.queries import query
from remuda.ports.local_files import MAKES_ROOM_AFTER, FileRefusal, StoredFile, Way

if TYPE_CHECKING:
    from datetime import datetime

    from asyncpg import Record

    from remuda.adapters.postgres.pool import Database, Pooled
    from remuda.ports.local_files import Forgotten, NewFile


class PostgresLocalFiles:
    """Implements ``remuda.ports.local_files.LocalFiles``."""

    def __init__(self, database: Database, *, total_max_bytes: int) -> None:
        self._database = database
        self._total_max_bytes = total_max_bytes
        """Of all archives together, give or take those that begin at the same moment."""

    async def append(
        self, file: NewFile, offset: int, data: bytes, *, at: datetime
    ) -> int | FileRefusal:
        async with self._database.transaction() as c:
            kept = await self._begun(c, file, at)
            if isinstance(kept, FileRefusal):
                return kept
            if offset + len(data) > file.size_bytes:
                return FileRefusal.OTHER_SIZE
            fresh = data[kept - offset :] if offset <= kept else b""
            if not fresh:
                return kept
            await c.execute(query("append_local_file"), file.file_id, kept, fresh)
            await c.execute(query("grow_local_file"), file.file_id, kept + len(fresh), at)
        return kept + len(fresh)

    async def _begun(self, c: Pooled, file: NewFile, at: datetime) -> int | FileRefusal:
        """Return how much of an archive is there, which is begun if need be. It is ours until the end of all this."""
        row = await c.fetchrow(query("lock_local_file"), file.file_id)
        if row is None:
            if not await self._has_room(c, file.size_bytes, at):
                return FileRefusal.NO_ROOM
            given = (file.file_id, file.way.value, file.owner, file.job_id or None)
            await c.execute(query("add_local_file"), *given, file.size_bytes, at)
            row = await c.fetchrow(query("lock_local_file"), file.file_id)
        if row is None or row["owner"] != file.owner or row["way"] != file.way.value:
            return FileRefusal.NOT_YOURS
        if row["size_bytes"] != file.size_bytes:
            return FileRefusal.OTHER_SIZE
        return int(row["kept_bytes"])

    async def _has_room(self, c: Pooled, size: int, at: datetime) -> bool:
        """Say whether there is room for so much more; make some if need be, and if that is enough."""
        over = await c.fetchval(query("local_files_total")) + size - self._total_max_bytes
        if over <= 0:
            return True
        await c.execute(query("evict_local_files"), at - MAKES_ROOM_AFTER, over)
        total = await c.fetchval(query("local_files_total"))
        return bool(total + size <= self._total_max_bytes)

    async def get(self, file_id: str) -> StoredFile | None:
        async with self._database.connection() as c:
            return _file_of(await c.fetchrow(query("local_file"), file_id))

    async def of_job(self, job_id: str, way: Way) -> StoredFile | None:
        async with self._database.connection() as c:
            return _file_of(await c.fetchrow(query("local_file_of_job"), job_id, way.value))

    async def take(self, file_id: str, *, owner: str, job_id: str) -> bool:
        async with self._database.connection() as c:
            taken = await c.fetchval(query("take_local_file"), file_id, owner, job_id)
        return taken is not None

    async def read(self, file_id: str, offset: int, *, limit: int) -> bytes:
        stop = offset + limit
        async with self._database.connection() as c:
            rows = await c.fetch(query("read_local_file"), file_id, offset, stop)
        begins = rows[0]["begins"] if rows else offset
        return b"".join(row["data"] for row in rows)[offset - begins : stop - begins]

    async def fetched(self, file_id: str, pod_uid: str) -> None:
        async with self._database.connection() as c:
            await c.execute(query("fetched_local_file"), file_id, pod_uid)

    async def given(self, file_id: str, *, at: datetime) -> None:
        async with self._database.connection() as c:
            await c.execute(query("given_local_file"), file_id, at)

    async def forget(self, before: Forgotten, *, limit: int) -> int:
        ages = (before.untaken, before.ended, before.fetched)
        async with self._database.connection() as c:
            done = await c.execute(query("forget_local_files"), *ages, limit)
        return int(done.rsplit(" ", 1)[1])


def _file_of(row: Record | None) -> StoredFile | None:
    if row is None:
        return None
    return StoredFile(
        file_id=row["file_id"],
        way=Way(row["way"]),
        owner=row["owner"],
        size_bytes=row["size_bytes"],
        kept_bytes=row["kept_bytes"],
        job_id=row["job_id"] or "",
        fetched_by=row["fetched_by"] or "",
        fetched_at=row["fetched_at"],
    )
