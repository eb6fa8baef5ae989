"""
An ASGI application served by uvicorn, for as long as a block lasts, with our own signals, sockets and ends.

The socket is bound before anything else begins, so a port that is taken is an error and not a half-started process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from remuda.adapters.status_server import CannotListen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from remuda.adapters.status_server import Listen

_KEEP_ALIVE_S = 75
"""Longer than the idle time of common load balancers: else one sends a request into a connection that is closing."""
_BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that runs."""

    address: str
    _server: uvicorn.Server

    def stop(self) -> None:
        """Take no more connections, and end once the requests under way are answered."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Leaves signals to the process, for what they mean is decided there, and says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving_http(
    app: Callable[..., Any], listen: Listen, *, shutdown_s: float
) -> AsyncIterator[HttpServer]:
    """Serve until the block ends; then requests under way have ``shutdown_s`` to be answered."""
    with _bound(listen) as bound:
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,  # ours
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(shutdown_s)),
            backlog=_BACKLOG,
        )
        server = _Server(config)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[bound]), name="http server")
            try:
                await server.up.wait()
                yield HttpServer(_address(bound), server)
            finally:
                server.should_exit = True


@contextlib.contextmanager
def _bound(listen: Listen) -> Iterator[socket.socket]:
    everywhere = not listen.host and socket.has_dualstack_ipv6()
    v6 = everywhere or ":" in listen.host
    bound = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        _bind(bound, listen, everywhere=everywhere)
        yield bound
    finally:
        bound.close()


def _bind(bound: socket.socket, listen: Listen, *, everywhere: bool) -> None:
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if everywhere:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(("::" if everywhere else listen.host, listen.port))
        bound.settimeout(0)  # asyncio demands it
    except OSError as error:
        raise CannotListen(
            f"HTTP cannot be served on {listen.host or '*'}:{listen.port}",
            why=(error.strerror or type(error).__name__).rstrip("."),
            fix="Choose another address with --listen, or stop what uses it",
        ) from None


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
