"""
The route of GitHub's messages: what is wrong with one is said as early as it can be known, and 200 means durable.

A plain route, because the signature is over the raw body, and because nothing of a message without one is ever read. It
looks into no message: that is the intake's.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

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

    async def github(request: Request) -> Response:
        return await _answer(intake, request)

    return [Route("/webhooks/github", github, methods=["POST"])]


async def _answer(intake: Intake, request: Request) -> Response:
    headers = dict(request.headers)
    refused = intake.refuse_unread(headers)
    if refused is not None:
        return _refused(refused, _CLOSE)
    body = await _body(request, headers, intake.settings)
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
    request: Request, headers: Mapping[str, str], bounds: IntakeSettings
) -> bytes | Rejected:
    """Read the body, unless it is too large, comes too slowly, or its sender goes."""
    announced = headers.get("content-length", "0")
    if len(announced) > _DIGITS_MAX or not announced.isdecimal():
        return _too_large(bounds)
    if int(announced) > bounds.body_max_bytes:
        return _too_large(bounds)
    whole = bytearray()
    try:
        async with asyncio.timeout(bounds.body_s):
            async for chunk in request.stream():
                whole += chunk
                if len(whole) > bounds.body_max_bytes:
                    return _too_large(bounds)
    except TimeoutError:
        why = f"its body did not arrive within {bounds.body_s:g} s"
        return Rejected(408, "The message came too slowly", why, "Send it again")
    except ClientDisconnect:
        return _GONE
    return bytes(whole)


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
