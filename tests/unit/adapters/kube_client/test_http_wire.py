"""The wire against a real server on loopback that misbehaves in every way that servers do."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from remuda.adapters.kube_client import Connection, Credential, Fixed, HttpWire, explicit
from remuda.adapters.kube_client.credentials import FromFiles
from remuda.ports.kube import KubeError, Refused, TimedOut, Unavailable
from remuda.ports.wire import Request
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

GET = Request("GET", "/api/v1/pods")
OLD, NEW = "old", "new"


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def a_wire(connection: Connection) -> AsyncIterator[HttpWire]:
    wire = HttpWire(connection)
    try:
        yield wire
    finally:
        await wire.close()


@asynccontextmanager
async def answered_by(handler: Handler) -> AsyncIterator[HttpWire]:
    async with serving(handler) as url, a_wire(explicit(url)) as wire:
        yield wire


async def read_all(wire: HttpWire, *, idle_timeout_s: float = 5.0, into: list[bytes]) -> None:
    async with wire.stream(GET, connect_timeout_s=5, idle_timeout_s=idle_timeout_s) as stream:
        async for chunk in stream.chunks():
            into += [chunk]  # one by one: what came before a fault is kept


# --- Ordinary answers ---------------------------------------------------------------------------


async def test_a_request_arrives_as_it_was_made() -> None:
    async def echo(request: web.Request) -> web.Response:
        lines = [
            request.method,
            request.raw_path.partition("?")[0],
            str(dict(request.query)),
            request.headers["Accept"],
            request.headers.get("Content-Type", "-"),
            request.headers.get("Authorization", "-"),
            request.headers["Accept-Encoding"],
            (await request.read()).decode(),
        ]
        return web.Response(text="\n".join(lines), headers={"Retry-After": "7"}, status=429)

    asked = Request(
        "PATCH",
        "/api/v1/a%2Fb",
        (("labelSelector", "a=b,!c,d in (e,f)"), ("continue", "x+/=&%41 z")),
        b"{}",
        "application/merge-patch+json",
    )
    async with serving(echo) as url, a_wire(explicit(f"{url}/k8s/c-1/", token=OLD)) as wire:
        answer = await wire.send(asked, timeout_s=5)
    assert answer.body.decode().splitlines() == [
        "PATCH",
        "/k8s/c-1/api/v1/a%2Fb",
        "{'labelSelector': 'a=b,!c,d in (e,f)', 'continue': 'x+/=&%41 z'}",
        "application/json",
        "application/merge-patch+json",
        "Bearer old",
        "identity",
        "{}",
    ]
    assert (answer.status, answer.retry_after_s) == (429, 7.0)


async def test_connections_are_used_again() -> None:
    ports: set[int] = set()

    async def note(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.Response(text="ok")

    async with answered_by(note) as wire:
        for _ in range(5):
            await wire.send(GET, timeout_s=5)
    assert len(ports) == 1


async def test_a_redirect_is_an_answer_and_not_followed() -> None:
    async def redirect(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/login"})

    async with answered_by(redirect) as wire:
        assert (await wire.send(GET, timeout_s=5)).status == 302


# --- A server that does not answer --------------------------------------------------------------


async def test_a_server_that_hangs_is_given_up_at_the_deadline() -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    async with answered_by(hang) as wire:
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimedOut, match=r"GET /api/v1/pods got no answer: .* silent for 0.2 s"):
            await wire.send(GET, timeout_s=0.2)
        with pytest.raises(TimedOut):
            async with wire.stream(GET, connect_timeout_s=0.2, idle_timeout_s=60):
                pytest.fail("there is no answer to read")
        assert asyncio.get_running_loop().time() - began < 5


async def test_a_body_that_never_ends_is_given_up_at_the_deadline_too() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(600):
            await response.write(b"x")
            await asyncio.sleep(0.05)
        return response

    async with answered_by(drip) as wire:
        with pytest.raises(TimedOut):
            await wire.send(GET, timeout_s=0.3)


async def test_nobody_listens() -> None:
    async with a_wire(explicit("http://127.0.0.1:1")) as wire:
        with pytest.raises(Unavailable, match="Check the server address"):
            await wire.send(GET, timeout_s=5)


@asynccontextmanager
async def raw(answer: bytes, *, reset: bool = False) -> AsyncIterator[HttpWire]:
    """Serve bytes and end the connection, politely or with a reset."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if reset:
            await asyncio.sleep(0.05)
            linger = struct.pack("ii", 1, 0)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # no time: a reset
            writer.transport.abort()
        else:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        async with a_wire(explicit(f"http://127.0.0.1:{port}")) as wire:
            yield wire
    finally:
        server.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("answer", "reset"),
    [
        pytest.param(b"", False, id="it hangs up"),
        pytest.param(b"", True, id="it resets"),
        pytest.param(HEAD + b"Content-Length: 100\r\n\r\n{", False, id="it hangs up half-way"),
        pytest.param(HEAD + b"Content-Length: 100\r\n\r\n{", True, id="it resets half-way"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", False, id="half a chunk"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", False, id="it is no web server"),
    ],
)
async def test_an_answer_that_is_none(answer: bytes, *, reset: bool) -> None:
    async with raw(answer, reset=reset) as wire:
        with pytest.raises(Unavailable) as caught:
            await wire.send(Request("POST", "/x", (), b"{}"), timeout_s=5)
    assert not isinstance(caught.value, TimedOut)


# --- Answers that go on -------------------------------------------------------------------------


async def test_chunks_come_as_they_are_sent() -> None:
    go_on = asyncio.Event()

    async def two(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        await go_on.wait()
        await response.write(b"second")
        return response

    async with (
        answered_by(two) as wire,
        wire.stream(GET, connect_timeout_s=5, idle_timeout_s=5) as stream,
    ):
        assert stream.status == 200
        chunks = stream.chunks()
        assert await anext(chunks) == b"first"
        go_on.set()
        assert [chunk async for chunk in chunks] == [b"second"]


async def test_silence_ends_a_stream_and_slowness_does_not() -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(4):
            await response.write(b"x")
            await asyncio.sleep(0.2)
        await asyncio.sleep(60)
        raise AssertionError

    async with answered_by(slow) as wire:
        found: list[bytes] = []
        with pytest.raises(TimedOut, match=r"silent for 0\.5 s"):
            await read_all(wire, idle_timeout_s=0.5, into=found)
    assert b"".join(found) == b"xxxx"


@pytest.mark.parametrize("reset", [False, True])
async def test_a_stream_that_is_cut_is_unavailable(*, reset: bool) -> None:
    async with raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", reset=reset) as wire:
        found: list[bytes] = []
        with pytest.raises(Unavailable):
            await read_all(wire, into=found)
    assert b"".join(found) == b"{}"


async def test_what_the_reader_raises_is_not_mistaken_for_the_networks() -> None:
    async def empty(_: web.Request) -> web.Response:
        return web.Response()

    async with answered_by(empty) as wire:
        with pytest.raises(TimeoutError, match="mine"):
            async with wire.stream(GET, connect_timeout_s=5, idle_timeout_s=5):
                raise TimeoutError("mine")


async def test_cancelling_is_not_mistaken_for_a_fault() -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    async with answered_by(hang) as wire:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.1):
                await wire.send(GET, timeout_s=30)
        assert not isinstance(caught.value, KubeError)


# --- Who we are ---------------------------------------------------------------------------------


def guarded(good: list[str]) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        known = request.headers.get("Authorization") == f"Bearer {good[0]}"
        return web.Response(status=200 if known else 401, text=await request.text())

    return handler


async def test_a_rewritten_token_file_is_read_again(tmp_path: Path) -> None:
    good = ["one"]
    file = tmp_path / "token"
    file.write_text("one\n")
    async with serving(guarded(good)) as url:
        connection = Connection(server=url, credentials=FromFiles(token=file))
        async with a_wire(connection) as wire:
            assert (await wire.send(GET, timeout_s=5)).status == 200
            good[0] = "two"
            (tmp_path / "new").write_text("two\n")
            (tmp_path / "new").rename(file)
            assert (await wire.send(GET, timeout_s=5)).status == 200


async def test_after_a_401_the_request_is_sent_once_more_with_the_newer_token() -> None:
    class Rotating:
        def __init__(self) -> None:
            self.renewals = 0

        async def current(self) -> Credential:
            return Credential(token=OLD)

        async def renew(self, refused: Credential) -> Credential:
            assert refused.token == OLD
            self.renewals += 1
            return Credential(token=NEW)

    good, rotating = [NEW], Rotating()
    async with (
        serving(guarded(good)) as url,
        a_wire(Connection(server=url, credentials=rotating)) as wire,
    ):
        answer = await wire.send(Request("POST", "/x", (), b"body"), timeout_s=5)
        assert (answer.status, answer.body) == (200, b"body")
        async with wire.stream(GET, connect_timeout_s=5, idle_timeout_s=5) as stream:
            assert stream.status == 200
        good[0] = "another"
        assert (await wire.send(GET, timeout_s=5)).status == 401
    assert rotating.renewals == 3


@pytest.mark.parametrize(
    "token", ["hunter\n2", "hunter\r\n2", "hunter 2", "hunter\x002", "hünter2"]
)
async def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    async with a_wire(explicit("http://127.0.0.1:1", token=token)) as wire:
        with pytest.raises(Refused, match="it holds blanks, line breaks or other") as caught:
            await wire.send(GET, timeout_s=5)
    assert "nter" not in str(caught.value)


async def test_a_proxy_that_refuses_us_does_not_make_us_tell_its_password() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        place = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        connection = Connection(server="https://10.0.0.1", proxy_url=f"http://me:hunter2@{place}")
        async with a_wire(connection) as wire:
            with pytest.raises(Unavailable, match="407 Who are you") as caught:
                await wire.send(GET, timeout_s=5)
    assert "hunter2" not in str(caught.value)


async def test_a_401_with_nothing_newer_is_an_answer() -> None:
    async with serving(guarded([NEW])) as url, a_wire(explicit(url, token=OLD)) as wire:
        assert (await wire.send(GET, timeout_s=5)).status == 401


# --- TLS ----------------------------------------------------------------------------------------


async def whoami(request: web.Request) -> web.Response:
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert")
    subject = dict(pair[0] for pair in certificate["subject"]) if certificate else {}
    return web.Response(text=subject.get("commonName", "nobody"))


async def test_the_server_is_who_its_ca_says_and_we_are_who_our_certificate_says(
    tmp_path: Path,
) -> None:
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    pair = authority.server("server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    tls.load_cert_chain(pair.certificate, pair.key)
    tls.verify_mode = ssl.CERT_OPTIONAL
    client = authority.client("system:node:mini-1", ())
    me = Credential(
        certificate_pem=client.certificate.read_bytes(), key_pem=client.key.read_bytes()
    )
    ca_pem = authority.file.read_bytes()
    async with serving(whoami, tls) as url:
        async with a_wire(Connection(server=url, ca_pem=ca_pem)) as wire:
            assert (await wire.send(GET, timeout_s=5)).body == b"nobody"
        async with a_wire(Connection(server=url, ca_pem=ca_pem, credentials=Fixed(me))) as wire:
            assert (await wire.send(GET, timeout_s=5)).body == b"system:node:mini-1"
        async with a_wire(Connection(server=url, ca_pem=stranger.file.read_bytes())) as wire:
            with pytest.raises(Unavailable, match="Check the CA"):
                await wire.send(GET, timeout_s=5)
        other = Connection(server=url, ca_pem=ca_pem, tls_server_name="elsewhere.example")
        async with a_wire(other) as wire:
            with pytest.raises(Unavailable, match="Check the CA"):
                await wire.send(GET, timeout_s=5)
        insecure = Connection(server=url, insecure=True, tls_server_name="elsewhere.example")
        async with a_wire(insecure) as wire:
            assert (await wire.send(GET, timeout_s=5)).status == 200
