"""A dispatch server whose answers a test writes, one after the other, hostile ones too."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SECRET = "canary-4711-secret"  # noqa: S105 - what must not leak
GITHUB_JOB = {
    "job_id": "github.com/4711",
    "owner": "acme",
    "kind": "github",
    "encoded_jit_config": SECRET,
    "runner_name": "linux-a-0a1b",
    "deadline": None,
}
LOCAL_JOB = {
    "job_id": "local-1",
    "owner": "local",
    "kind": "local",
    "script": f"echo {SECRET}",
    "env": {"TOKEN": SECRET},
    "runner_name": "linux-a-0a1b",
    "deadline": "2026-03-01T12:00:00Z",
}


@dataclass(slots=True)
class PollServer:
    """What it answers next, and what it was asked."""

    url: str = ""
    polls: deque[Any] = field(default_factory=deque)
    """The answers to polls; when there are no more, a poll is held open."""
    reports: deque[Any] = field(default_factory=deque)
    """The answers to reports; when there are no more, 204."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The headers of each poll."""
    told: list[dict[str, Any]] = field(default_factory=list)
    """What each report said, with its path."""
    gone: int = 0
    """How many went while their poll was held open."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def poll(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.headers))
        self.news.set()
        if self.polls:
            made: web.StreamResponse = await self.polls.popleft()(request)
            return made
        return await self._hold()

    async def report(self, request: web.Request) -> web.StreamResponse:
        self.told.append(
            {
                "path": request.path,
                "token": request.headers["Authorization"],
                **await request.json(),
            }
        )
        self.news.set()
        if self.reports:
            made: web.StreamResponse = await self.reports.popleft()(request)
            return made
        return web.Response(status=204)

    async def _hold(self) -> web.StreamResponse:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.gone += 1
            self.news.set()
            raise
        raise AssertionError("a test does not last that long")

    async def until(self, what: Callable[[], bool], within_s: float = 20.0) -> None:
        """Wait for something to have been asked."""
        async with asyncio.timeout(within_s):
            while not what():
                self.news.clear()
                await self.news.wait()


def says(status: int, body: Any = None, **headers: str) -> Any:  # noqa: ANN401 - JSON, and a handler
    async def answer(_: web.Request) -> web.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is None:
            content = b""
        return web.Response(status=status, body=content, headers=headers)

    return answer


def half(body: bytes) -> Any:  # noqa: ANN401 - a handler
    """Send half of a body and cut the line."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        assert request.transport is not None
        request.transport.abort()
        return response

    return answer


def endless(size: int) -> Any:  # noqa: ANN401 - a handler
    """Send more and more."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(size // 65_536):
            await response.write(b" " * 65_536)
        return response

    return answer


def cut() -> Any:  # noqa: ANN401 - a handler
    """Say nothing and cut the line."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return answer


@asynccontextmanager
async def a_poll_server() -> AsyncIterator[PollServer]:
    server = PollServer()
    app = web.Application()
    app.router.add_post("/api/v1/dispatch", server.poll)
    app.router.add_post("/api/v1/runners/{pod}/telemetry", server.report)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        await runner.cleanup()
