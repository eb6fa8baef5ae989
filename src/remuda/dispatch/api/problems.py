"""
Every error of the API in one form: ``application/problem+json`` with what happened, why, and what to do about it.

No answer holds a stack trace, a token or a part of a request's body. What a person outside cannot use goes to our log.
"""

from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remuda.model.errors import BadInput, RemudaError, Retry
from remuda.ports.database import DatabaseConflict, DatabaseError, DatabaseTimeout

PROBLEM_TYPE: Final = "application/problem+json"
_LOOK = "Look at the server's log, and report this if it is not explained there"
_FAULTS_MAX = 10
_NO_OBJECT = frozenset({"missing", "model_type", "model_attributes_type"})
"""How the library calls a body that is missing or no object, as one without its content type is to it."""
_SOON_S = 2

log = structlog.get_logger(__name__)


class ProblemBody(BaseModel):
    """What went wrong, for a person and for a program. RFC 9457."""

    title: str = Field(description="The name of the status", examples=["Not Found"])
    status: int = Field(description="The status of the answer", examples=[404])
    error: str = Field(description="What happened", examples=["There is no job github.com/1"])
    why: str = Field(description="Why")
    fix: str = Field(description="What to do about it")


class Problem(HTTPException):
    """An answer that is an error. Raise it anywhere in a request."""

    def __init__(
        self, status: int, error: str, why: str, fix: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, detail=f"{error}: {why}", headers=headers)
        self.status, self.error, self.why, self.fix = status, error, why, fix


def problem_response(
    status: int, error: str, why: str, fix: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return the answer; where nothing may be raised any more, or nothing catches it."""
    body = {"title": _title(status), "status": status, "error": error, "why": why, "fix": fix}
    return JSONResponse(body, status, headers=headers, media_type=PROBLEM_TYPE)


def from_problem(problem: Problem) -> JSONResponse:
    headers = dict(problem.headers or {})
    return problem_response(problem.status, problem.error, problem.why, problem.fix, headers)


def from_error(error: RemudaError) -> Problem:
    """Say an error of ours over HTTP. The database's own words are for our log: they name hosts and users."""
    if isinstance(error, DatabaseError):
        return _database_problem(error)
    if isinstance(error, BadInput):
        return Problem(400, error.what, error.why, error.fix)
    if error.retry is Retry.SOON:
        return Problem(503, error.what, error.why, error.fix, {"Retry-After": str(_SOON_S)})
    return Problem(500, error.what, error.why, error.fix)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error answers of a route for OpenAPI. Every route may also fail for us (500) or the database (503)."""
    return {
        status: {"description": _SAYS[status], "content": {PROBLEM_TYPE: {"schema": _SCHEMA}}}
        for status in sorted({*statuses, 500, 503})
    }


_SCHEMA: Final = {"$ref": "#/components/schemas/ProblemBody"}
_SAYS: Final = {
    400: "The request cannot be read",
    401: "Nobody could tell who asks",
    403: "Who asks may not do this",
    404: "There is no such thing",
    405: "This cannot be done here",
    408: "The request's body did not arrive in time",
    409: "It does not fit what is there",
    410: "It is over",
    413: "The request's body is too large",
    415: "The request's body is not of a kind that is read here",
    422: "A part of the request has a value that makes no sense",
    429: "Too much at once: ask again after Retry-After",
    500: "A fault of the server",
    503: "Not now: ask again after Retry-After",
}


def handle_problems(app: FastAPI) -> None:
    """Give an app our form for every error that a route can end with."""
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(RemudaError, _on_error)


async def _on_http(request: Request, raised: Exception) -> JSONResponse:
    assert isinstance(raised, HTTPException)
    if isinstance(raised, Problem):
        return from_problem(raised)
    error, why, fix = _plain(request, raised.status_code)
    return problem_response(raised.status_code, error, why, fix, dict(raised.headers or {}))


async def _on_invalid(_: Request, raised: Exception) -> JSONResponse:
    assert isinstance(raised, RequestValidationError)
    faults = raised.errors()
    if any(fault["type"] == "json_invalid" for fault in faults):
        fix = "Send a JSON document as the API's description says (/openapi.json)"
        return problem_response(400, "The request cannot be read", "its body is not JSON", fix)
    said = "; ".join(_fault(fault) for fault in faults[:_FAULTS_MAX])
    fix = "Correct what is named; the API's description is at /openapi.json"
    return problem_response(422, "A part of the request makes no sense", said, fix)


async def _on_error(_: Request, raised: Exception) -> JSONResponse:
    assert isinstance(raised, RemudaError)
    problem = from_error(raised)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("request failed", what=raised.what, why=raised.why, fix=raised.fix)
    return from_problem(problem)


class LastResort:
    """
    Middleware: a fault of ours ends in an answer without details and in one log line with them.

    What a plain route raises in our form is answered here too, where FastAPI does not stand in between.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception as error:
            answer = await answer_to(error, scope, begun=begun)
            if answer is None:
                raise
            await answer(scope, receive, send)


async def answer_to(error: Exception, scope: Scope, *, begun: bool) -> JSONResponse | None:
    """
    Return what is said of an error that a request ended with, while that is handled.

    None: half an answer is on its way, and only a closed connection says that it is no whole one.
    """
    if begun or not isinstance(error, (HTTPException, RemudaError)):
        log.error("request broke", exc_info=error, method=scope["method"], path=scope["path"])
    if begun:
        return None
    request = Request(scope)
    if isinstance(error, HTTPException):
        return await _on_http(request, error)
    return await _on_error(request, error) if isinstance(error, RemudaError) else _broken()


def _broken() -> JSONResponse:
    why = "a fault of the server, not of the request"
    return problem_response(500, "The request could not be served", why, _LOOK)


def _database_problem(error: DatabaseError) -> Problem:
    why = "the database did not answer"
    if isinstance(error, DatabaseTimeout):
        why = "the database took too long; what was asked for may have been done"
    elif isinstance(error, DatabaseConflict):
        why = "another change stood in its way, and nothing was done"
    elif error.retry is Retry.NEVER:
        why = "the database refuses us"
    fix = "Try again; if it lasts, look at the server's log"
    headers = {"Retry-After": str(_SOON_S)}
    return Problem(503, "The request could not be served now", why, fix, headers)


def _plain(request: Request, status: int) -> tuple[str, str, str]:
    """Word an error that the framework raised, which knows only a status."""
    see = "Compare the request with the API's description at /openapi.json"
    if status == HTTPStatus.NOT_FOUND:
        return "There is nothing here", "no such path is served", see
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        why = f"{request.method[:20]} is not among the methods of this path"
        return "This cannot be done here", why, see
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return "The request cannot be read", "a part of it has a form that is not known", see
    return "The request could not be served", "a fault of the server, not of the request", _LOOK


def _fault(fault: dict[str, Any]) -> str:
    """Name the place and the rule, never the value: it may be a secret."""
    where = ".".join(str(part)[:40] for part in fault["loc"])
    if where == "body" and fault["type"] in _NO_OBJECT:
        return "body: it is not a JSON object sent with the header Content-Type: application/json"
    said = str(fault["msg"]).removeprefix("Value error, ")
    return f"{where}: {said[:200].removesuffix('.')}"


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
