"""Connections against a server that says, byte for byte, what a test wants, and ends when it wants."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.registry.connections import Connections, NotReached
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PATIENT_S = 60.0
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"
ASK_OVER_TLS = """\
import asyncio, sys
from remuda.adapters.registry.connections import Connections
async def ask():
    connections = Connections(connect_s=60, stall_s=60)
    async with connections.request("GET", sys.argv[1], {}) as answer:
        print((await answer.read(100)).decode())
    connections.close()
asyncio.run(ask())
"""


@dataclass
class Said:
    """A server that answers each question with the same bytes."""

    answer: bytes = WHOLE
    ends: bool = False
    """Whether it ends a connection after its answer, without having said so."""
    connections: int = 0
    asked: list[bytes] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    @contextlib.asynccontextmanager
    async def served(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Said]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/x"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.asked.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self.answer)
                await writer.drain()
                if self.ends:
                    break
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        self.ended.set()


async def body(connections: Connections, url: str) -> bytes:
    async with connections.request("GET", url, {}) as answer:
        parts: list[bytes] = []
        while await answer.pour(3, parts.append):
            pass
        return b"".join(parts)


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    made = Connections(connect_s=PATIENT_S, stall_s=10 * PATIENT_S)
    yield made
    made.close()


async def test_a_connection_is_kept_for_the_next_question(connections: Connections) -> None:
    async with Said().served() as server:
        for _ in range(3):
            assert await body(connections, server.url) == b"body"
        assert server.connections == 1
        assert server.asked[0].startswith(b"GET /x HTTP/1.1\r\n")
        connections.close()


async def test_a_kept_connection_that_was_ended_is_not_used_again(
    connections: Connections,
) -> None:
    async with Said(ends=True).served() as server:
        for number in (1, 2):
            server.ended.clear()
            assert await body(connections, server.url) == b"body"
            await asyncio.wait_for(server.ended.wait(), PATIENT_S)
            assert server.connections == number


async def test_what_is_not_read_to_its_end_is_not_kept(connections: Connections) -> None:
    async with Said().served() as server:
        for _ in range(2):
            async with connections.request("GET", server.url, {}) as answer:
                assert await answer.read(2) == b"bo"
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"connection: close\r\ncontent-length: 8\r\n\r\na bodyof", id="to be closed"),
        pytest.param(b"\r\na bodyof", id="until its end"),
        pytest.param(
            b"transfer-encoding: chunked\r\n\r\n6\r\na body\r\n2\r\nof\r\n0\r\n\r\n", id="in chunks"
        ),
    ],
)
async def test_a_body_comes_whole(connections: Connections, answer: bytes) -> None:
    async with Said(b"HTTP/1.1 200 OK\r\n" + answer, ends=True).served() as server:
        assert await body(connections, server.url) == b"a bodyof"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"content-length: 10\r\n\r\nhalf", id="before its length"),
        pytest.param(b"transfer-encoding: chunked\r\n\r\n9\r\nhalf", id="in a chunk"),
        pytest.param(b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", id="after a chunk"),
    ],
)
async def test_what_came_before_a_body_broke_off_is_counted(
    connections: Connections, answer: bytes
) -> None:
    async with Said(b"HTTP/1.1 200 OK\r\n" + answer, ends=True).served() as server:
        parts: list[bytes] = []
        async with connections.request("GET", server.url, {}) as got:
            assert await got.pour(100, parts.append) == 4
            with pytest.raises(NotReached):
                await got.pour(100, parts.append)
    assert b"".join(parts) == b"half"


async def test_what_the_taker_raises_is_not_taken_for_the_networks(
    connections: Connections,
) -> None:
    def take(_piece: bytes) -> None:
        raise OSError("of the taker")

    async with Said().served() as server:
        with pytest.raises(OSError, match="of the taker"):
            async with connections.request("GET", server.url, {}) as answer:
                await answer.pour(10, take)


@pytest.mark.parametrize("answer", [b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200])
async def test_what_is_no_answer_is_told(connections: Connections, answer: bytes) -> None:
    async with Said(answer, ends=True).served() as server:
        with pytest.raises(NotReached, match=r"\w"):
            await body(connections, server.url)


@pytest.mark.parametrize(
    "url", ["http://", "http:///x", "ftp://x/y", "http://[", "http://x:99999/"]
)
async def test_what_is_no_address_is_told(connections: Connections, url: str) -> None:
    with pytest.raises(NotReached):
        await body(connections, url)


async def test_who_is_cancelled_waits_for_no_server(connections: Connections) -> None:
    async with Said(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").served() as server:
        parts: list[bytes] = []
        some = asyncio.Event()
        loop = asyncio.get_running_loop()

        def take(piece: bytes) -> None:
            parts.append(piece)
            loop.call_soon_threadsafe(some.set)

        async def read() -> None:
            async with connections.request("GET", server.url, {}) as answer:
                await answer.pour(10, take)

        async with asyncio.timeout(PATIENT_S), asyncio.TaskGroup() as group:
            reading = group.create_task(read(), name="reading")
            await some.wait()
            reading.cancel()
        assert reading.cancelled()
        assert b"".join(parts) == b"half"


async def test_a_server_is_believed_by_its_certificate_only(
    connections: Connections, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.server("registry")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    async with Said().served(tls) as server:
        with pytest.raises(NotReached, match="certificate"):
            await body(connections, server.url)
        assert server.asked == [], "nothing was said to it"
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ASK_OVER_TLS, server.url),
            env={**os.environ, "SSL_CERT_FILE": str(authority.file)},
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await asking.communicate()
    assert said == b"body\n"
