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
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from remuda.adapters.status_server import CannotListen
from remuda.ports.http import CLIENT, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from remuda.adapters.status_server import Listen

_KEEP_ALIVE_S = 75
"""Longer than the idle time of common load balancers: else one sends a request into a connection that is closing."""
_BACKLOG = 4096
_HEAD = b"HTTP/1.1 "
"""How the head of each of uvicorn's answers begins."""


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that runs."""

    address: str
    _server: uvicorn.Server

    def stop(self) -> None:
        """Take no more connections, and end once the requests under way are answered."""
        self._server.should_exit = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadBounds:
    """How long and how large the head of a request may be: who has not sent one is nobody yet, and may be many."""

    first_s: float = _KEEP_ALIVE_S
    """How long a new connection may say nothing; after a request that is for the server's keep-alive to say."""
    whole_s: float = 15.0
    """How long a head may take from its first byte to its end."""
    bytes_max: int = 128 * 1024


class _HeadWithBody(asyncio.Transport):
    """
    A connection whose answers go out in one write where uvicorn makes two: each is a call of the kernel and a packet.

    The head waits for what follows in the same turn of the loop, and for no longer: a stream's may stand alone.
    """

    __slots__ = ("_head", "_real")

    def __init__(self, real: asyncio.Transport) -> None:
        super().__init__()
        self._real = real
        self._head = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._head:
            data, self._head = self._head + bytes(data), b""
        elif bytes(data[: len(_HEAD)]) == _HEAD:
            self._head = bytes(data)
            asyncio.get_running_loop().call_soon(self._flush)
            return
        self._real.write(data)

    def close(self) -> None:
        self._flush()
        self._real.close()

    def abort(self) -> None:
        self._real.abort()

    def is_closing(self) -> bool:
        return self._real.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._real.set_protocol(protocol)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._real.write(head)


class _Bounded(HttpToolsProtocol):
    """A connection that is ended if the head of a request does not come, or does not end: uvicorn bounds neither."""

    heads: HeadBounds
    _timer: asyncio.TimerHandle | None = None
    _in_head = True
    _begun = False
    """Whether a head is under way, of which a part has come."""
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self.transport = _HeadWithBody(transport)
        self._sender = Client()
        self._give(self.heads.first_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._take_back()
        super().connection_lost(exc)
        self._sender.leave()

    def data_received(self, data: bytes) -> None:
        began_in_head, had_begun = self._in_head, self._begun
        super().data_received(data)
        # Most heads are whole at once, and need no timer. One may end and the next begin in the same piece.
        if self._begun and (not had_begun or self._timer is None):
            self._give(self.heads.whole_s)
        if not (began_in_head and self._in_head):
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > self.heads.bytes_max:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CLIENT: {"client": self._sender}}
        self._in_head = self._begun = True

    def on_headers_complete(self) -> None:
        self._in_head = self._begun = False
        self._take_back()
        super().on_headers_complete()

    def _give(self, seconds: float) -> None:
        self._take_back()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

    def _take_back(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _bounded(heads: HeadBounds) -> type[_Bounded]:
    return type("_BoundedAsTold", (_Bounded,), {"heads": heads})


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
    app: Callable[..., Any], listen: Listen, *, shutdown_s: float, heads: HeadBounds | None = None
) -> AsyncIterator[HttpServer]:
    """Serve until the block ends; then requests under way have ``shutdown_s`` to be answered."""
    with _bound(listen) as bound:
        config = uvicorn.Config(
            app,
            http=_bounded(heads or HeadBounds()),
            ws="none",
            lifespan="off",
            access_log=False,
            proxy_headers=False,  # nobody here asks for the client's address
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
