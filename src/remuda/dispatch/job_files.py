"""
Archives of local jobs as people and runners send and fetch them.

A person sends an upload before the job that names it. A runner's Pod reads the upload of the job that it was handed,
and sends back what that job left: for no other job, and only until it is over. Everything may be sent twice. What is in
an archive is never looked at, and stands in no log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from remuda.model.errors import BadInput, RemudaError
from remuda.model.job_files import FILES_MAX_BYTES, PIECE_MAX_BYTES
from remuda.ports.database import DatabaseError
from remuda.ports.local_files import FileRefusal, NewFile, Way

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from remuda.dispatch.settings import FileSettings
    from remuda.dispatch.telemetry import Telemetry
    from remuda.dispatch.who import RunnerIdentity
    from remuda.ports.clock import Clock
    from remuda.ports.local_files import LocalFiles, StoredFile
    from remuda.ports.local_jobs import LocalJob, LocalJobs

log = structlog.get_logger(__name__)

_WHAT = "The files were not taken"


class FilesTooLarge(BadInput):
    """An archive, or a piece of one, has more bytes than it may."""


class FilesUnfit(BadInput):
    """A piece does not fit what is there."""


class NoRoom(RemudaError):
    """All archives together are as large as they may be."""


class NoFiles(BadInput):
    """There are none to be had."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of an archive, from a place in it on."""

    size_bytes: int
    """Of all of it."""
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFiles:
    """The desk where archives are handed in and out."""

    files: LocalFiles
    local: LocalJobs
    telemetry: Telemetry
    settings: FileSettings
    clock: Clock

    async def keep(self, file_id: str, piece: Piece, *, by: str) -> int:
        """Keep a piece of a person's upload; return where to go on."""
        bytes_max = min(self.settings.bytes_max, FILES_MAX_BYTES)
        if piece.size_bytes > bytes_max:
            why = f"they have {piece.size_bytes} bytes, packed, and may have {bytes_max}"
            fix = "Send less, or fetch the rest from the script; the bound is a setting of the server (--files-max)"
            raise FilesTooLarge(_WHAT, why=why, fix=fix)
        file = NewFile(file_id=file_id, way=Way.IN, owner=by, size_bytes=piece.size_bytes)
        return await self._append(file, piece)

    async def for_runner(self, who: RunnerIdentity, offset: int) -> bytes:
        """Return some of what a Pod's job needs. With the last of it the Pod may begin."""
        job = await self.telemetry.job_of(who)
        file = None
        if job is not None and job.upload is not None and job.end is None:
            file = await self.files.of_job(job.job_id, Way.IN)
        if file is None or not file.is_whole:
            why = "the job that this Pod holds has none, or is over"
            raise NoFiles("There are no files", why=why, fix="Ask for a job first")
        data = await self.files.read(file.file_id, offset, limit=PIECE_MAX_BYTES)
        if data and offset + len(data) == file.size_bytes:
            await self.files.fetched(file.file_id, who.pod_uid)
        return data

    async def from_runner(self, who: RunnerIdentity, piece: Piece) -> int:
        """Keep a piece of what a Pod's job left; return where to go on."""
        job = await self.telemetry.job_of(who)
        wanted = job is not None and job.download and job.begun_by == who.pod_uid
        if job is None or not wanted or job.end is not None:
            why = "this Pod runs no job whose files are to come back, or it is over"
            raise FilesUnfit(_WHAT, why=why, fix="Send them while the job counts as running")
        if piece.size_bytes > FILES_MAX_BYTES:
            why = f"they have {piece.size_bytes} bytes, packed, and may have {FILES_MAX_BYTES}"
            raise FilesTooLarge(_WHAT, why=why, fix="Let less come back")
        file = NewFile(
            file_id=f"out:{job.job_id}",
            way=Way.OUT,
            owner=who.pod_uid,
            size_bytes=piece.size_bytes,
            job_id=job.job_id,
        )
        return await self._append(file, piece)

    async def back(self, job: LocalJob) -> StoredFile | None:
        """Return what is known of the archive that came back from a job."""
        return await self.files.of_job(job.job_id, Way.OUT)

    async def pieces(self, file: StoredFile, offset: int) -> AsyncGenerator[bytes, None]:
        """Read a whole archive from a place on."""
        while offset < file.size_bytes:
            data = await self.files.read(file.file_id, offset, limit=PIECE_MAX_BYTES)
            if not data:
                return  # it was forgotten meanwhile: what came is too short, and so known to be
            yield data
            offset += len(data)
            if offset == file.size_bytes:  # and whoever asked was there to the end
                await self._given(file)

    async def _given(self, file: StoredFile) -> None:
        """Note that all of it was fetched. A fault costs nothing but room: all is sent, and must not look cut short."""
        try:
            await self.files.given(file.file_id, at=self.clock.now())
        except DatabaseError as error:
            log.warning("fetch not noted", file=file.file_id, error=str(error))

    async def _append(self, file: NewFile, piece: Piece) -> int:
        if len(piece.data) > PIECE_MAX_BYTES:
            why = f"a piece has {len(piece.data)} bytes, and may have {PIECE_MAX_BYTES}"
            raise FilesTooLarge(_WHAT, why=why, fix="Send them in smaller pieces")
        answer = await self.files.append(file, piece.offset, piece.data, at=self.clock.now())
        match answer:
            case FileRefusal.NOT_YOURS:
                why, fix = "somebody else sends files of this name", "Use a new name"
                raise FilesUnfit(_WHAT, why=why, fix=fix)
            case FileRefusal.OTHER_SIZE:
                why = "they were to have another size, or the piece goes beyond their end"
                raise FilesUnfit(_WHAT, why=why, fix="Use a new name for other files")
            case FileRefusal.NO_ROOM:
                total = self.settings.total_max_bytes
                why = f"all files of jobs together may have {total} bytes, and there is not as much left"
                fix = (
                    "Fetch what came back from jobs that are over: it makes room soon after. Or wait until"
                    " jobs have ended, or raise the server's --files-total"
                )
                raise NoRoom(_WHAT, why=why, fix=fix)
            case _:
                return answer
