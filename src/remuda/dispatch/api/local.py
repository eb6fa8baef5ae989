"""Local jobs over HTTP: posting, cancelling, reading the log, and what their runners say."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Protocol

import structlog
from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import JSONResponse, StreamingResponse

from remuda.dispatch.api.auth import Operator, Reader, RunnerToken, bearer, unauthorized
from remuda.dispatch.api.inputs import JobId, PodName
from remuda.dispatch.api.local_bodies import (
    CancelledBody,
    NewJob,
    OutcomeBody,
    ReplyBody,
    SubmittedBody,
    TelemetryBody,
)
from remuda.dispatch.api.problems import Problem, documented
from remuda.dispatch.decide.local_jobs import output_of
from remuda.dispatch.job_files import JobFiles
from remuda.dispatch.local import is_local
from remuda.dispatch.submissions import (
    Cancellation,
    FilesMissing,
    KeyTaken,
    NoSuchPool,
    Submissions,
)
from remuda.dispatch.telemetry import Telemetry
from remuda.dispatch.who import RunnerIdentity, Unknown
from remuda.model.output import Output
from remuda.ports.clock import Clock
from remuda.ports.database import DatabaseError
from remuda.ports.local_jobs import LocalJob, LocalJobs, LogPart

CHUNK_BYTES: Final = 256 * 1024
_OFFSET_MAX: Final = 2**40
_TEXT: Final[dict[str, Any]] = {"text/plain": {"schema": {"type": "string"}}}

log = structlog.get_logger(__name__)


class Runners(Protocol):
    """Which Pod belongs to a token. Filled by ``remuda.dispatch.identity``."""

    async def runner(self, token: str) -> RunnerIdentity | Unknown: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParts:
    """What the routes stand on."""

    submissions: Submissions
    telemetry: Telemetry
    files: JobFiles
    local: LocalJobs
    runners: Runners
    clock: Clock
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when this replica goes: whoever follows a log is sent to another."""
    follow_s: float = 1.0
    """How often to look for more output."""
    followers_max: int = 200
    """How many may follow logs at once: each costs the database a statement for each look."""


_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,255}$",
        description="The same request with the same key is the same job, however often it is sent",
    ),
]
_Offset = Annotated[int, Query(ge=0, le=_OFFSET_MAX, description="How many bytes to pass over")]
_Follow = Annotated[
    bool, Query(description="Stay, and send more as it comes, until the job is over")
]


def local_router(parts: LocalParts) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/api/v1")
    _add_jobs(router, parts)
    _add_outcome(router, parts)
    _add_logs(router, parts)
    _add_telemetry(router, parts)
    return router


def _add_jobs(router: APIRouter, parts: LocalParts) -> None:
    @router.post(
        "/jobs",
        tags=["jobs"],
        summary="Run a script on a fresh runner",
        status_code=201,
        responses={
            200: {
                "description": "This request came before: the job of then",
                "model": SubmittedBody,
            },
            **documented(400, 401, 403, 408, 409, 413, 422),
        },
    )
    async def submit_job(
        who: Operator, wanted: NewJob, response: Response, key: _Key = None
    ) -> SubmittedBody:
        try:
            submitted = await parts.submissions.submit(
                wanted.submission(), by=who.name, key=key or ""
            )
        except NoSuchPool as error:
            raise Problem(422, error.what, error.why, error.fix) from None
        except (KeyTaken, FilesMissing) as error:
            raise Problem(409, error.what, error.why, error.fix) from None
        response.headers["Location"] = f"/api/v1/jobs/{submitted.job_id}"
        if not submitted.is_new:
            response.status_code = 200
        return SubmittedBody.of(submitted)

    @router.post(
        "/jobs/{job_id:path}/cancel",
        tags=["jobs"],
        summary="Cancel a local job",
        responses=documented(401, 403, 404, 409, 422),
    )
    async def cancel_job(who: Operator, job_id: JobId) -> CancelledBody:
        ours(job_id)
        outcome = await parts.submissions.cancel(job_id, by=who.in_audit)
        if outcome is Cancellation.UNKNOWN:
            raise no_job(job_id)
        return CancelledBody(id=job_id, outcome=outcome.value)


def _add_outcome(router: APIRouter, parts: LocalParts) -> None:
    @router.get(
        "/jobs/{job_id:path}/outcome",
        tags=["jobs"],
        summary="Show how far a local job is, and how it ended",
        responses=documented(401, 403, 404, 409, 422),
    )
    async def read_outcome(who: Reader, job_id: JobId) -> OutcomeBody:
        del who
        ours(job_id)
        job = await parts.local.get(job_id)
        if job is None:
            raise no_job(job_id)
        back = await parts.files.back(job) if job.download else None
        return OutcomeBody.of(job, back, now=parts.clock.now())


def _add_logs(router: APIRouter, parts: LocalParts) -> None:
    logs = _Logs(parts)

    @router.get(
        "/jobs/{job_id:path}/logs",
        tags=["jobs"],
        summary="Read what a local job printed",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "The output from the offset on. `Remuda-Job-Over` says whether the job was over,"
                " `Remuda-Job-Output` whether all is here that it printed (see `output` of its outcome)",
                "content": _TEXT,
            },
            **documented(401, 403, 404, 409, 422, 429),
        },
    )
    async def read_logs(
        who: Reader,
        job_id: JobId,
        offset: _Offset = 0,
        follow: _Follow = False,  # noqa: FBT002 - a query has no position
    ) -> Response:
        del who
        ours(job_id)
        return await logs.answer(job_id, offset, follow=follow)


def _add_telemetry(router: APIRouter, parts: LocalParts) -> None:
    @router.post(
        "/runners/{pod}/telemetry",
        tags=["machines"],
        summary="Say how a runner's job goes",
        status_code=204,
        response_class=Response,
        responses={
            200: {"description": "Something that the runner must know", "model": ReplyBody},
            **documented(400, 401, 403, 408, 413, 422),
        },
    )
    async def take_telemetry(
        request: Request, pod: PodName, body: TelemetryBody, _: RunnerToken = None
    ) -> Response:
        reply = ReplyBody.of(
            await parts.telemetry.take(await the_runner(parts, request, pod), body.report())
        )
        if reply is None:
            return Response(status_code=204)
        return JSONResponse(reply.model_dump(exclude_none=True))


async def the_runner(parts: LocalParts, request: Request, pod: str) -> RunnerIdentity:
    """Let in the Pod of the path and no other."""
    who = await parts.runners.runner(bearer(request))
    if isinstance(who, Unknown):
        if who.status == 401:  # noqa: PLR2004 - the status that says so
            raise unauthorized(who.why, who.fix)
        raise Problem(who.status, "You may not do this", who.why, who.fix)
    if who.pod != pod:
        why = f"the token is that of the Pod {who.pod}"
        raise Problem(403, "You may not do this", why, "A runner speaks for itself only")
    return who


def ours(job_id: str) -> None:
    if not is_local(job_id):
        if "/" in job_id:
            why = "it is a job of another forge, which has its log and can cancel it"
            raise Problem(409, "This is not done here", why, "Go to the job's own page there")
        raise no_job(job_id)


def no_job(job_id: str) -> Problem:
    why = "it is not known, or was forgotten because it ended long ago"
    return Problem(404, f"There is no local job {job_id}", why, "Look at GET /api/v1/jobs")


class _Logs:
    """Sends logs out, to a bounded number of followers."""

    def __init__(self, parts: LocalParts) -> None:
        self._parts = parts
        self._followers = 0

    async def answer(self, job_id: str, offset: int, *, follow: bool) -> Response:
        first = await self._parts.local.read_log(job_id, offset, limit=CHUNK_BYTES)
        if first is None:
            raise no_job(job_id)
        if follow and not first.complete and self._followers >= self._parts.followers_max:
            why = f"{self._followers} logs are followed at this server now"
            fix = "Ask again in a moment, or read it without follow"
            raise Problem(429, "Too many follow logs", why, fix, {"Retry-After": "5"})
        job = await self._parts.local.get(job_id)
        headers = {
            "Remuda-Job-Over": "true" if job is not None and job.end is not None else "false",
            "Remuda-Job-Output": self._how_much(job),
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        pieces = self._followed(job_id, first) if follow else self._rest(job_id, first)
        return StreamingResponse(pieces, headers=headers, media_type="text/plain")

    def _how_much(self, job: LocalJob | None) -> str:
        """Say whether more may come. Of a job that was forgotten nothing does."""
        return Output.FINAL if job is None else output_of(job, self._parts.clock.now())

    async def _rest(self, job_id: str, first: LogPart) -> AsyncIterator[bytes]:
        """Send what is there now."""
        part: LogPart | None = first
        while part is not None and part.data:
            yield part.data
            if part.complete:
                return
            part = await self._parts.local.read_log(job_id, part.next_offset, limit=CHUNK_BYTES)

    async def _followed(self, job_id: str, first: LogPart) -> AsyncIterator[bytes]:
        """Send what is there and what comes. The server cancels this when the client has gone."""
        self._followers += 1
        try:
            part = first
            while True:
                if part.data:
                    yield part.data
                if part.complete or self._parts.closing.is_set():
                    return
                if not part.data:
                    await self._parts.clock.sleep(self._parts.follow_s)
                part = await self._more(job_id, part)
        finally:
            self._followers -= 1

    async def _more(self, job_id: str, part: LogPart) -> LogPart:
        """Read on. A fault of the database costs time only; a job that was forgotten has no more."""
        at = part.next_offset
        try:
            more = await self._parts.local.read_log(job_id, at, limit=CHUNK_BYTES)
        except DatabaseError as error:
            log.warning("log not read", job=job_id, error=str(error))
            return LogPart(b"", at, complete=False)
        return more or LogPart(b"", at, complete=True)
