"""
A runner's long poll over HTTP: ``POST /api/v1/dispatch``.

A plain route, for no server ends a handler whose client has gone: here what the connection says is heard while the poll
waits, and a poll without a client ends at once and claims nothing. The answer with a job is one line of JSON and is
kept by nobody on its way. Whether it arrived cannot be known; if it did not, the Pod asks again and is given it again.
"""

import asyncio
import math
import re
from typing import Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from remuda.dispatch.answers import (
    AlreadyDelivered,
    Answer,
    ComeBack,
    Handed,
    Leave,
    NothingYet,
    Refused,
)
from remuda.dispatch.api.auth import bearer
from remuda.dispatch.api.problems import PROBLEM_TYPE, Problem, problem_response
from remuda.dispatch.desk import Desk
from remuda.dispatch.hub import Bell, Gone
from remuda.dispatch.identity import Identities
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.settings import DispatchSettings
from remuda.dispatch.who import Unknown
from remuda.model.errors import RemudaError
from remuda.ports.http import client_of

PATH: Final = "/api/v1/dispatch"
BODY_MAX_BYTES: Final = 64 * 1024
"""What a runner may send along. It is not read, but it is not waited for without bound either."""
_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?([^\s,;\"]*)\"?", re.IGNORECASE)
_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")
_SILENT: Final = {"Cache-Control": "no-store"}
_JOB_HEADERS: Final = ((b"cache-control", b"no-store"), (b"content-type", b"application/json"))
_UNAUTHORIZED: Final = 401
_RETRY_S: Final = 2.0

log = structlog.get_logger(__name__)


def poll_routes(
    desk: Desk, identities: Identities, metrics: DispatchMetrics, settings: DispatchSettings
) -> list[Route]:
    """Return the route of the runners' poll."""
    return [Route(PATH, _Polls(desk, identities, metrics, settings), methods=["POST"])]


class _Polls:
    """The ASGI application of the route: it needs ``receive`` itself."""

    def __init__(
        self,
        desk: Desk,
        identities: Identities,
        metrics: DispatchMetrics,
        settings: DispatchSettings,
    ) -> None:
        self._desk, self._identities, self._metrics = desk, identities, metrics
        self._wait_max_s = settings.polls.wait_max_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        token, wait_s = bearer(request), self._wait_s(request)
        if not await _skip_body(receive):
            return
        gone = Gone()
        client = client_of(scope)
        if client is not None:
            client.on_leave(gone.set)
            try:
                await self._serve(token, wait_s, gone, scope, send)
            finally:
                client.forget(gone.set)
            return
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(_listen(receive, gone), name="poll: client")
            try:
                await self._serve(token, wait_s, gone, scope, send)
            finally:
                listening.cancel()

    async def _serve(self, token: str, wait_s: float, gone: Gone, scope: Scope, send: Send) -> None:
        answer = await self._ask(token, wait_s, gone)
        # Nothing else runs between the desk's last look at the client and the first byte of the answer.
        if not gone.is_set():
            await _send(answer, scope, send)
        if isinstance(answer, Handed):
            await self._desk.answered(answer)

    async def _ask(self, token: str, wait_s: float, gone: Gone) -> Answer:
        gone.bell = cut = _Cut()
        try:
            who = await self._identities.runner(token)
        except asyncio.CancelledError:
            if not cut.was_all():
                raise
            return NothingYet()  # its client is gone
        except RemudaError as error:
            log.warning("nobody could tell who polls", error=str(error))
            self._metrics.polled("come_back")
            return ComeBack(_RETRY_S, "nobody can tell now whose token this is")
        finally:
            gone.bell = None
        if isinstance(who, Unknown):
            self._metrics.polled("refused")
            return Refused(who.status, who.why, who.fix)
        return await self._desk.poll(who, wait_s=wait_s, gone=gone)

    def _wait_s(self, request: Request) -> float:
        """Read ``Prefer: wait=SECONDS`` (RFC 7240). Other preferences are not ours; a wait that is none is refused."""
        said = _WAIT.search(",".join(request.headers.getlist("prefer")))
        if said is None:
            return 0.0
        if _SECONDS.fullmatch(said[1]) is None:
            why = "the wait in its Prefer header is not a number of seconds"
            raise Problem(400, "The poll cannot be read", why, "Send: Prefer: wait=25")
        return min(float(said[1]), self._wait_max_s)


class _Cut(Bell):
    """Cuts what its maker's task waits for short when it rings: an ``asyncio.timeout`` without its contexts."""

    __slots__ = ("_before", "_task")

    def __init__(self) -> None:
        super().__init__()
        task = asyncio.current_task()
        assert task is not None, "polls are served by tasks"
        self._task, self._before = task, task.cancelling()

    def ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._task.cancel()

    def was_all(self) -> bool:
        """Say, once it was cut short, whether that was all: else somebody cancelled the task too."""
        return self._rung and self._task.uncancel() <= self._before


async def _skip_body(receive: Receive) -> bool:
    """Read past the body, which says nothing. False: the client went away while it sent it."""
    seen = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return False
        seen += len(message.get("body", b""))
        if seen > BODY_MAX_BYTES:
            why = f"its body is larger than {BODY_MAX_BYTES} bytes"
            close = {"Connection": "close"}
            raise Problem(413, "The request is too large", why, "Send none: it is not read", close)
        if not message.get("more_body", False):
            return True


async def _listen(receive: Receive, gone: Gone) -> None:
    """Hear that the client went away: it is all that can be heard after the body."""
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


# --- Answers ----------------------------------------------------------------------------------------------------------


async def _send(answer: Answer, scope: Scope, send: Send) -> None:
    if not isinstance(answer, Handed):
        await _response(answer)(scope, _nothing_more, send)
        return
    body = _job(answer)
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [*_JOB_HEADERS, length]})
    await send({"type": "http.response.body", "body": body})


async def _nothing_more() -> Message:
    """Stand for what a client may still say: an answer that is whole listens to nothing."""
    return {"type": "http.disconnect"}


def _response(answer: NothingYet | Leave | AlreadyDelivered | Refused | ComeBack) -> Response:
    match answer:
        case NothingYet():
            return Response(status_code=204, headers=_SILENT)
        case Leave(reason):
            return _leave(reason)
        case AlreadyDelivered(job_id):
            why = f"its job {job_id} was handed over and runs"
            return problem_response(409, "This runner has its job", why, "Take no other", _SILENT)
        case Refused(status, why, fix):
            who = {"WWW-Authenticate": "Bearer"} if status == _UNAUTHORIZED else {}
            return problem_response(status, "This is no runner of ours", why, fix, _SILENT | who)
        case ComeBack(retry_after_s, why, status):
            later = {"Retry-After": str(max(1, math.ceil(retry_after_s)))}
            fix = "Ask again after Retry-After"
            return problem_response(status, "Not now", why, fix, _SILENT | later)


def _job(handed: Handed) -> bytes:
    """Write a job in one line. Its keys appear once each: what reads it may be a shell."""
    minted, spec = handed.minted, handed.job.spec
    said: dict[str, object] = {"job_id": spec.id, "owner": spec.tenant, "kind": spec.kind.value}
    if minted.encoded_jit_config:
        said["encoded_jit_config"] = minted.encoded_jit_config
    else:
        said |= {"script": minted.script, "env": dict(minted.env)}
        if minted.upload is not None:
            size, digest = minted.upload.size_bytes, minted.upload.sha256
            said |= {"upload_bytes": size, "upload_sha256": digest}
        if minted.download:
            said["download"] = "\n".join(minted.download)
    said |= {"runner_name": handed.runner_name, "deadline": minted.deadline}
    return msgspec.json.encode(said)


def _leave(reason: str) -> Response:
    fix = "End with exit code 0; another runner takes its place"
    body = {
        "title": "Gone",
        "status": 410,
        "error": "This runner is to end",
        "why": reason,
        "fix": fix,
        "reason": reason,
    }
    return JSONResponse(body, 410, _SILENT, PROBLEM_TYPE)
