"""What is served over real sockets: where, until when, and what happens to requests under way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from remuda.adapters.http_server import HeadBounds, serving_http
from remuda.adapters.status_server import CannotListen, Listen
from remuda.ports.http import client_of
from tests.support.eventually import within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.adapters.http_server import HttpServer


class Slow:
    """An application that answers when the test says so."""

    def __init__(self) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(
        self,
        scope: dict[str, Any],
        _receive: Callable[[], Awaitable[Any]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        assert scope["type"] == "http", "no other protocol is offered to the application"
        self.asked.set()
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


async def test_a_request_under_way_is_answered_after_the_stop() -> None:
    app = Slow()
    async with aiohttp.ClientSession() as client, asyncio.TaskGroup() as group:
        async with serving_http(app, Listen(port=0), shutdown_s=30) as server:
            request = group.create_task(client.get(server.address), name="request")
            await app.asked.wait()
            server.stop()
            app.go_on.set()
        assert await (await request).text() == "done"


async def test_a_request_that_does_not_end_does_not_hold_the_stop_for_ever() -> None:
    app = Slow()
    async with aiohttp.ClientSession() as client, asyncio.TaskGroup() as group:
        async with serving_http(app, Listen(port=0), shutdown_s=1) as server:
            request = group.create_task(_fails(client, server.address), name="request")
            await app.asked.wait()
        assert await request


async def _fails(client: aiohttp.ClientSession, address: str) -> bool:
    try:
        async with client.get(address) as answer:
            return answer.status >= 500
    except aiohttp.ClientError:
        return True


async def test_a_port_that_is_taken_is_said_before_anything_begins() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = Listen(port=taken.getsockname()[1])
        with pytest.raises(CannotListen, match=rf"127.0.0.1:{listen.port}.*in use"):
            async with serving_http(Slow(), listen, shutdown_s=1):
                pytest.fail("nothing may run")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", ""], ids=["IPv4", "IPv6", "every address"])
async def test_it_serves_on(host: str) -> None:
    app = Slow()
    app.go_on.set()
    async with serving_http(app, Listen(host, 0), shutdown_s=1) as server:
        address = server.address.replace("[::]", "127.0.0.1")
        async with aiohttp.ClientSession() as client, client.get(address) as answer:
            assert answer.status == 200
            assert "server" not in answer.headers


async def test_an_error_of_the_block_is_not_taken_for_one_of_the_socket() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with serving_http(Slow(), Listen(port=0), shutdown_s=1):
            raise OSError("the block's own")
    assert raised.group_contains(OSError, match="the block's own")


# --- Heads of requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n", id="half a head"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /", id="half a second head"),
    ],
)
async def test_a_connection_on_which_no_request_comes_is_ended(sent: bytes) -> None:
    app, quick = Slow(), HeadBounds(first_s=0.05, whole_s=0.05)
    app.go_on.set()
    async with serving_http(app, Listen(port=0), shutdown_s=1, heads=quick) as server:
        reader, writer = await _connected(server)
        writer.write(sent)
        await within(reader.read())  # until its end
        writer.close()


async def test_a_head_that_begins_where_another_ends_is_waited_for_no_longer() -> None:
    app, quick = Slow(), HeadBounds(first_s=60, whole_s=1.0)
    app.go_on.set()
    async with serving_http(app, Listen(port=0), shutdown_s=1, heads=quick) as server:
        reader, writer = await _connected(server)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")
        await writer.drain()
        await asyncio.sleep(0.2)  # so that it comes in two pieces
        writer.write(b"\r\nGET /")
        await within(reader.read())  # until its end
        writer.close()


async def test_a_head_without_an_end_is_not_kept() -> None:
    small = HeadBounds(bytes_max=64 * 1024)
    async with serving_http(Slow(), Listen(port=0), shutdown_s=1, heads=small) as server:
        reader, writer = await _connected(server)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(4096):
                writer.write(b"x" * 64 * 1024)
                await within(writer.drain())
                if reader.at_eof():
                    break
            else:
                pytest.fail("256 MiB of a head were taken in")
        writer.close()


async def test_a_request_may_take_its_time_once_its_head_is_there() -> None:
    app, quick = Slow(), HeadBounds(first_s=0.05, whole_s=0.05)
    async with serving_http(app, Listen(port=0), shutdown_s=1, heads=quick) as server:
        reader, writer = await _connected(server)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await app.asked.wait()
        await asyncio.sleep(0.2)
        app.go_on.set()
        assert (await within(reader.readline())).startswith(b"HTTP/1.1 200")
        writer.close()


async def _connected(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(server.address.rpartition(":")[2])
    return await asyncio.open_connection("127.0.0.1", port)


# --- What is beside ASGI ----------------------------------------------------------------------------------------------


async def test_the_head_of_a_stream_does_not_wait_for_its_body() -> None:
    go_on = asyncio.Event()

    async def app(_scope: dict[str, Any], _receive: object, send: Any) -> None:  # noqa: ANN401 - ASGI's
        head = {"type": "http.response.start", "status": 200}
        await send(head | {"headers": [(b"content-length", b"4")]})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"done"})

    async with serving_http(app, Listen(port=0), shutdown_s=30) as server:
        reader, writer = await _connected(server)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await within(reader.readuntil(b"\r\n\r\n"))).startswith(b"HTTP/1.1 200")
        go_on.set()
        assert await within(reader.readexactly(4)) == b"done"
        writer.close()


async def test_answers_on_one_connection_follow_each_other_whole() -> None:
    app = Slow()
    app.go_on.set()
    async with serving_http(app, Listen(port=0), shutdown_s=30) as server:
        reader, writer = await _connected(server)
        writer.write(2 * b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        said = await within(reader.read())
        assert said.count(b"HTTP/1.1 200") == said.count(b"done") == 3
        assert said.endswith(b"\r\ndone\r\n0\r\n\r\n")
        writer.close()


async def test_an_application_is_told_that_its_client_went_without_listening() -> None:
    asked, gone, later = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def app(scope: dict[str, Any], _receive: object, _send: object) -> None:
        client = client_of(scope)
        assert client is not None
        client.on_leave(gone.set)
        client.on_leave(_never)
        client.forget(_never)
        asked.set()
        await gone.wait()
        client.on_leave(later.set)

    async with serving_http(app, Listen(port=0), shutdown_s=30) as server:
        _, writer = await _connected(server)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await within(asked.wait())
        assert not gone.is_set()
        writer.close()
        await within(gone.wait())
        await within(later.wait())


def _never() -> None:
    pytest.fail("who wants to know no more is not told")
