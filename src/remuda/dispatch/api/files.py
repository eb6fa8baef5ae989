"""Files of local jobs over HTTP: uploads, what came back, and both as a runner's agent carries them."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse

from remuda.dispatch.api.auth import Operator, Reader, RunnerToken
from remuda.dispatch.api.inputs import JobId, PodName
from remuda.dispatch.api.local import LocalParts, no_job, ours, the_runner
from remuda.dispatch.api.local_bodies import FILE_ID
from remuda.dispatch.api.problems import Problem, documented
from remuda.dispatch.job_files import FilesTooLarge, FilesUnfit, NoFiles, NoRoom, Piece
from remuda.model.errors import RemudaError

_OFFSET_MAX: Final = 2**40
_BINARY: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
_BYTES: Final[dict[str, Any]] = {"application/octet-stream": _BINARY}
_TAKES_BYTES: Final[dict[str, Any]] = {"requestBody": {"required": True, "content": _BYTES}}
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_STATUSES: Final[dict[type[RemudaError], int]] = {
    FilesTooLarge: 413,
    FilesUnfit: 409,
    NoFiles: 404,
    NoRoom: 429,
}

_FileId = Annotated[
    str, Path(pattern=FILE_ID, description="A name of your own choice, for this archive alone")
]
_Offset = Annotated[int, Query(ge=0, le=_OFFSET_MAX, description="Where in the archive to begin")]
_Size = Annotated[
    int, Query(ge=1, le=_OFFSET_MAX, description="How many bytes all of the archive has")
]


class NextBody(BaseModel):
    """Where to go on: a piece that left a gap was not taken."""

    next_offset: int = Field(description="So many bytes are there from the beginning on")


def files_router(parts: LocalParts) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/api/v1")
    _add_uploads(router, parts)
    _add_results(router, parts)
    _add_runners(router, parts)
    return router


def _add_uploads(router: APIRouter, parts: LocalParts) -> None:
    @router.put(
        "/files/{file_id}",
        tags=["jobs"],
        summary="Send files for a job to come, in pieces of at most 1 MiB",
        responses=documented(401, 403, 408, 409, 413, 422, 429),
        openapi_extra=_TAKES_BYTES,
    )
    async def send_files(
        request: Request, who: Operator, file_id: _FileId, size: _Size, offset: _Offset = 0
    ) -> NextBody:
        piece = Piece(size, offset, await request.body())
        try:
            at = await parts.files.keep(file_id, piece, by=who.name)
        except tuple(_STATUSES) as error:
            raise _problem(error) from None
        return NextBody(next_offset=at)


def _add_results(router: APIRouter, parts: LocalParts) -> None:
    @router.get(
        "/jobs/{job_id:path}/files",
        tags=["jobs"],
        summary="Fetch the files that came back from a local job",
        response_class=StreamingResponse,
        responses={
            200: {"description": "An archive (tar, gzip), from the offset on", "content": _BYTES},
            **documented(401, 403, 404, 409, 422),
        },
    )
    async def fetch_files(who: Reader, job_id: JobId, offset: _Offset = 0) -> Response:
        del who
        ours(job_id)
        job = await parts.local.get(job_id)
        if job is None:
            raise no_job(job_id)
        file = await parts.files.back(job)
        if file is None or not file.is_whole:
            why = (
                "none were asked for, none came back, or they were forgotten: a day after its end,"
                " or some minutes after somebody had fetched them"
            )
            raise Problem(404, f"There are no files of the job {job_id}", why, "Run it again")
        return StreamingResponse(
            parts.files.pieces(file, offset),
            headers=_HEADERS,
            media_type="application/octet-stream",
        )


def _add_runners(router: APIRouter, parts: LocalParts) -> None:
    @router.get(
        "/runners/{pod}/files",
        tags=["machines"],
        summary="Fetch some of the files that the runner's job needs",
        response_class=Response,
        responses={
            200: {"description": "At most 1 MiB from the offset on", "content": _BYTES},
            **documented(401, 403, 404, 422),
        },
    )
    async def give_files(
        request: Request, pod: PodName, offset: _Offset = 0, _: RunnerToken = None
    ) -> Response:
        who = await the_runner(parts, request, pod)
        try:
            data = await parts.files.for_runner(who, offset)
        except NoFiles as error:
            raise _problem(error) from None
        return Response(data, headers=_HEADERS, media_type="application/octet-stream")

    @router.put(
        "/runners/{pod}/files",
        tags=["machines"],
        summary="Send some of the files that are to come back from the runner's job",
        responses=documented(401, 403, 408, 409, 413, 422, 429),
        openapi_extra=_TAKES_BYTES,
    )
    async def take_files(
        request: Request, pod: PodName, size: _Size, offset: _Offset = 0, _: RunnerToken = None
    ) -> NextBody:
        who = await the_runner(parts, request, pod)
        piece = Piece(size, offset, await request.body())
        try:
            return NextBody(next_offset=await parts.files.from_runner(who, piece))
        except tuple(_STATUSES) as error:
            raise _problem(error) from None


def _problem(error: RemudaError) -> Problem:
    later = {"Retry-After": "5"} if isinstance(error, NoRoom) else {}
    return Problem(_STATUSES[type(error)], error.what, error.why, error.fix, later)
