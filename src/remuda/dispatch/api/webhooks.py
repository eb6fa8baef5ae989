"""
The route of GitHub's messages: what is wrong with one is said as early as it can be known, and 200 means durable.

A plain ASGI route, because the signature is over the raw body, because nothing of a message without one is ever read,
and because every job of an organisation is announced here several times. It looks into no message: that is the
intake's.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from remuda.dispatch.api.problems import problem_response
from remuda.dispatch.intake import Intake
from remuda.dispatch.settings import IntakeSettings
from remuda.ports.database import DatabaseError
from remuda.ports.forge import Rejected

RETRY_AFTER_S: Final = 5
_CLOSE: Final = {"Connection": "close"}
_DIGITS_MAX: Final = 15

log = structlog.get_logger(__name__)


def webhook_routes(intake: Intake) -> list[Route]:
    """Return the routes that forges send their messages to."""
    return [Route("/webhooks/github", _Messages(intake), methods=["POST"], name="github")]


class _Messages:
    """The route's application."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await _answer(self._intake, scope, receive)
        await answer(scope, receive, send)


async def _answer(intake: Intake, scope: Scope, receive: Receive) -> Response:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    refused = intake.refuse_unread(headers)
    if refused is not None:
        return _refused(refused, _CLOSE)
    body = await _body(receive, headers, intake.settings)
    if isinstance(body, Rejected):
        intake.count("client_gone" if body is _GONE else f"rejected_{body.status}")
        return _refused(body, _CLOSE)
    try:
        received = await intake.receive(headers, body)
    except DatabaseError as error:
        log.warning("message not kept", error=str(error))
        return _not_kept()
    return _refused(received) if isinstance(received, Rejected) else Response()


async def _body(
    receive: Receive, headers: Mapping[str, str], bounds: IntakeSettings
) -> bytes | Rejected:
    """Read the body, unless it is too large, comes too slowly, or its sender goes."""
    announced = headers.get("content-length", "0")
    if len(announced) > _DIGITS_MAX or not announced.isdecimal():
        return _too_large(bounds)
    if int(announced) > bounds.body_max_bytes:
        return _too_large(bounds)
    try:
        async with asyncio.timeout(bounds.body_s):
            return await _read(receive, bounds)
    except TimeoutError:
        why = f"its body did not arrive within {bounds.body_s:g} s"
        return Rejected(408, "The message came too slowly", why, "Send it again")


async def _read(receive: Receive, bounds: IntakeSettings) -> bytes | Rejected:
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return _GONE
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > bounds.body_max_bytes:
            return _too_large(bounds)
        if not message.get("more_body", False):
            return b"".join(pieces)


_GONE: Final = Rejected(400, "The message is not whole", "its sender went", "Send it again")


def _too_large(bounds: IntakeSettings) -> Rejected:
    why = f"its body is larger than {bounds.body_max_bytes} bytes"
    return Rejected(413, "The message is too large", why, "Send workflow_job events only")


def _refused(rejected: Rejected, headers: dict[str, str] | None = None) -> Response:
    r = rejected
    return problem_response(r.status, r.error, r.why, r.fix, headers)


def _not_kept() -> Response:
    return problem_response(
        503,
        "The message was not kept",
        "the database did not take it",
        "Send it again",
        {"Retry-After": str(RETRY_AFTER_S)},
    )
