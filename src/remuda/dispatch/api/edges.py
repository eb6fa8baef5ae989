"""
What every request passes on its way in and out: the bounds of its body, and the access log.

The access log holds the method, the path, the status and the time: never a query, a header or a body.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remuda.dispatch.api.problems import Problem, answer_to, from_problem
from remuda.ports.clock import Clock
from remuda.ports.http import client_of

_QUIET: Final = ("/healthz", "/readyz", "/metrics", "/api/v1/dispatch", "/webhooks/github")
_QUIET_ENDS: Final = ("/telemetry", "/signals", "/files")
_QUIET_BEGIN: Final = "/api/v1/files/"
_PATH_MAX_CHARS = 300
_FAILED = 400
_DIGITS_MAX = 18

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyBounds:
    """What a request's body may be. A route may be stricter."""

    bytes_max: int = 4 * 1024 * 1024
    """More than the largest piece of a log that a runner sends at once."""

    arrives_s: float = 15.0
    """How long all of it may take: a sender that drips must not hold us."""


class BoundedBodies:
    """Middleware: a body that is too large ends with 413, one that takes too long with 408."""

    def __init__(self, app: ASGIApp, bounds: BodyBounds) -> None:
        self._app = app
        self._bounds = bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            bounded = self.bounded(scope, receive)
        except Problem as problem:
            await from_problem(problem)(scope, receive, send)
            return
        await self._app(scope, bounded, send)

    def bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Return what receives the body within its bounds. One that is announced as too large is refused at once."""
        if not _has_body(scope):
            return receive
        if self._announced(scope) > self._bounds.bytes_max:
            raise self._too_large()
        return self._bounded(receive)

    def _announced(self, scope: Scope) -> int:
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        # One with many digits is cut: it is too large all the same, and a number of thousands of them is an error.
        return max((int(value[:_DIGITS_MAX]) for value in lengths if value.isdigit()), default=0)

    def _bounded(self, receive: Receive) -> Receive:
        whole, seen = False, 0
        ends_at = asyncio.get_running_loop().time() + self._bounds.arrives_s

        async def received() -> Message:
            nonlocal whole, seen
            if (
                whole
            ):  # what comes now is only that the client went: that may take as long as it likes
                return await receive()
            try:
                async with asyncio.timeout_at(ends_at):
                    message = await receive()
            except TimeoutError:
                raise self._too_slow() from None
            seen += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if seen > self._bounds.bytes_max:
                raise self._too_large()
            return message

        return received

    def _too_large(self) -> Problem:
        why = f"its body is larger than {self._bounds.bytes_max} bytes"
        close = {"Connection": "close"}
        return Problem(413, "The request is too large", why, "Send it in smaller pieces", close)

    def _too_slow(self) -> Problem:
        why = f"its body did not arrive within {self._bounds.arrives_s:g} s"
        close = {"Connection": "close"}
        return Problem(408, "The request took too long", why, "Send it again", close)


def _has_body(scope: Scope) -> bool:
    """Say whether a body may follow the head: our own server speaks HTTP/1.1, where a header says so."""
    if client_of(scope) is None:
        return True
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return True
    return False


class AccessLog:
    """Middleware: one line for each request that ended. What machines ask all day is told only if it failed."""

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_at, status = self._clock.monotonic(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            _tell(scope["method"], scope["path"], status, self._clock.monotonic() - began_at)


class Direct:
    """
    What ``AccessLog``, ``LastResort`` and ``BoundedBodies`` do for a request, in one step.

    For what runners and forges call the whole day: each layer around it is a part of what a hand-over costs.
    """

    def __init__(self, app: ASGIApp, bounds: BodyBounds, clock: Clock) -> None:
        self._app, self._bodies, self._clock = app, BoundedBodies(app, bounds), clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_at, status = self._clock.monotonic(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, self._bodies.bounded(scope, receive), sent)
        except Exception as error:
            answer = await answer_to(error, scope, begun=status > 0)
            if answer is None:
                raise
            await answer(scope, receive, sent)
        finally:
            _tell(scope["method"], scope["path"], status, self._clock.monotonic() - began_at)


def _tell(method: str, path: str, status: int, seconds: float) -> None:
    quiet = path in _QUIET or path.endswith(_QUIET_ENDS) or path.startswith(_QUIET_BEGIN)
    say = log.debug if quiet and 0 < status < _FAILED else log.info
    if path not in _QUIET:
        path = "".join(c if c.isprintable() else "?" for c in path[:_PATH_MAX_CHARS])
    say("request", method=method[:20], path=path, status=status, seconds=round(seconds, 4))
