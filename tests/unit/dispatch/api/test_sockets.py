"""Clients on real sockets: those that go, those that stall, and what the server says while it goes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from remuda.adapters.http_server import serving_http
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock
from remuda.dispatch.api.feed import FeedSettings
from tests.support.api import an_office

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.api import Office

QUICK = FeedSettings(poll_s=0.02, heartbeat_s=3600.0)


@asynccontextmanager
async def a_server() -> AsyncIterator[tuple[Office, int]]:
    async with (
        an_office(SystemClock(), QUICK) as office,
        serving_http(office.app, Listen(port=0), shutdown_s=5.0) as server,
    ):
        port = urlsplit(server.address).port
        assert port is not None
        yield office, port


async def connected(
    port: int, request: str, token: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{request} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}\r\n".encode())
    return reader, writer


async def test_a_stream_whose_client_hangs_up_ends_without_a_beat() -> None:
    async with a_server() as (office, port):
        reader, writer = await connected(port, "GET /api/v1/events", office.keys["read"])
        await reader.readuntil(b": remuda\n\n")
        await office.until(lambda: office.feed.listeners == 1)

        writer.transport.abort()

        await office.until(lambda: office.feed.listeners == 0)


async def test_a_stream_is_sent_as_it_happens() -> None:
    async with a_server() as (office, port):
        reader, writer = await connected(port, "GET /api/v1/events?after=0", office.keys["read"])
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        assert b"transfer-encoding: chunked" in head.lower()
        await office.limit()
        assert b'"what":"limited"' in await asyncio.wait_for(reader.readuntil(b"}\n\n"), 30)
        writer.close()


async def test_a_server_that_goes_ends_its_streams_well() -> None:
    async with a_server() as (office, port):
        reader, writer = await connected(port, "GET /api/v1/events", office.keys["read"])
        await reader.readuntil(b": remuda\n\n")
        office.feed.close()
        rest = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 30)
        assert rest.endswith(b"0\r\n\r\n"), "the last chunk says that this is the end"
        writer.close()
