"""Dispatch over HTTP as the operator calls it: signals are what a test says, and every report is kept."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from remuda.ports.dispatch import Signals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.raw import Json


@dataclass(slots=True)
class DispatchServer:
    """What it answers and what it was told."""

    url: str = ""
    signals: dict[str, Signals] = field(default_factory=dict)
    stopped: dict[str, list[Json]] = field(default_factory=dict)
    """The reports about each runner, as they came."""

    async def answer_signals(self, request: web.Request) -> web.Response:
        signals = self.signals.get(request.match_info["pool"], Signals())
        return web.json_response(asdict(signals))

    async def take_report(self, request: web.Request) -> web.Response:
        self.stopped.setdefault(request.match_info["pod"], []).append(await request.json())
        return web.Response(status=204)


@asynccontextmanager
async def a_dispatch_server() -> AsyncIterator[DispatchServer]:
    server = DispatchServer()
    app = web.Application()
    app.router.add_get("/api/v1/pools/{pool}/signals", server.answer_signals)
    app.router.add_post("/api/v1/runners/{pod}/stopped", server.take_report)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        await runner.cleanup()
