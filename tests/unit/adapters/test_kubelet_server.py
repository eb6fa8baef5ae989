"""The agent's log endpoint over real TLS: whom it lets in, what it answers, and what it does not let happen to it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from remuda.adapters.kubelet_gate import Bearer, CannotAsk, Gate, bearer_of
from remuda.adapters.kubelet_server import KubeletBounds, KubeletEndpoint, serving_kubelet
from remuda.adapters.serving_certificate import LIFE, RENEW_BEFORE, ServingCertificate
from remuda.adapters.status_server import CannotListen, Listen
from remuda.adapters.system import SystemClock
from remuda.agent.log_reading import NoLogYet, NoSuchLog
from remuda.model.errors import BadInput
from remuda.ports.kube import Unavailable
from remuda.ports.wire import Response
from tests.support.certificates import Authority
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from datetime import datetime
    from pathlib import Path

    from remuda.agent.log_reading import LogRequest
    from remuda.ports.wire import Request
    from tests.support.certificates import KeyPair

WITHIN_S = 60.0
MASTERS = ("system:masters",)
PATH = "/containerLogs/ci/mare/runner"


@dataclass
class Shelf:
    """Logs as the test wants them."""

    pieces: list[bytes] = field(default_factory=lambda: [b"one\n", b"two\n"])
    fault: Exception | None = None
    endless: bytes = b""
    asked: list[tuple[str, str, LogRequest]] = field(default_factory=list)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    open_now: int = 0
    ended: int = 0

    async def open(
        self, namespace: str, pod: str, request: LogRequest
    ) -> AsyncGenerator[bytes, None]:
        self.asked.append((namespace, pod, request))
        if self.fault is not None:
            raise self.fault
        return self._given(request)

    async def _given(self, request: LogRequest) -> AsyncGenerator[bytes, None]:
        self.open_now += 1
        try:
            for piece in self.pieces:
                yield piece
            while self.endless:
                yield self.endless
            if request.follow:
                await self.goes_on.wait()
                yield b"last\n"
        finally:
            self.open_now -= 1
            self.ended += 1


class AskedServer:
    """An API server that only knows who may proxy to Nodes."""

    def __init__(self, answer: bytes | Unavailable = b"") -> None:
        self.answer = answer
        self.asked: list[bytes] = []

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        del timeout_s
        self.asked.append(request.body)
        if isinstance(self.answer, Unavailable):
            raise self.answer
        return Response(201, self.answer)

    def stream(self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float) -> None:
        raise NotImplementedError


class Endpoint:
    """An endpoint that serves, and who may ask it."""

    def __init__(
        self, folder: Path, *, bounds: KubeletBounds | None = None, ca: bool = True
    ) -> None:
        self.authority = Authority(folder / "ca")
        self.shelf = Shelf()
        self.server = AskedServer()
        self.port = 0
        self.settings = KubeletEndpoint(
            certificate=ServingCertificate(folder / "pki", ("127.0.0.1", "mac-1"), SystemClock()),
            client_ca=self.authority.file if ca else None,
            listen=Listen("127.0.0.1", 0),
            bounds=bounds or KubeletBounds(),
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Endpoint]:
        gate = Gate("mac-1", self.server, SystemClock())  # type: ignore[arg-type] # it never streams
        async with serving_kubelet(self.settings, self.shelf, gate, SystemClock()) as port:
            self.port = port
            yield self

    async def connect(
        self, pair: KeyPair | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context)

    def master(self) -> KeyPair:
        return self.authority.client("apiserver", MASTERS)

    async def ask(
        self, target: str = PATH, *, pair: KeyPair | None = None, method: str = "GET"
    ) -> bytes:
        """Send one request and return all of the answer."""
        async with asyncio.timeout(WITHIN_S):
            reader, writer = await self.connect(pair or self.master())
            try:
                writer.write(f"{method} {target} HTTP/1.1\r\nHost: mac\r\n\r\n".encode())
                return await reader.read()
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def body(answer: bytes) -> bytes:
    head, _, rest = answer.partition(b"\r\n\r\n")
    if b"Transfer-Encoding: chunked" not in head:
        return rest
    whole = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            return whole
        whole, rest = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[Endpoint]:
    async with Endpoint(tmp_path).serving() as serving:
        yield serving


async def test_the_api_server_reads_a_log(endpoint: Endpoint) -> None:
    answer = await endpoint.ask(f"{PATH}?tailLines=5")
    assert (status(answer), body(answer)) == (200, b"one\ntwo\n")
    [(namespace, pod, request)] = endpoint.shelf.asked
    assert (namespace, pod, request.tail_lines) == ("ci", "mare", 5)


async def test_who_shows_no_certificate_gets_no_answer(endpoint: Endpoint) -> None:
    with suppress(OSError):
        reader, writer = await endpoint.connect()
        writer.write(f"GET {PATH} HTTP/1.1\r\n\r\n".encode())
        assert await reader.read() == b""
        writer.close()
    assert endpoint.shelf.asked == []


async def test_a_certificate_of_another_authority_is_refused(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "other").client("apiserver", MASTERS)
    with suppress(OSError):
        assert await endpoint.ask(pair=stranger) == b""
    assert endpoint.shelf.asked == []


async def test_an_agent_without_an_authority_shows_logs_to_nobody(tmp_path: Path) -> None:
    async with Endpoint(tmp_path, ca=False).serving() as endpoint:
        answer = await endpoint.ask()
        assert status(answer) == 401
        assert b"--kubelet-client-ca" in body(answer)
        assert endpoint.shelf.asked == []


async def test_who_may_proxy_to_the_node_is_let_in_and_asked_about_once(endpoint: Endpoint) -> None:
    endpoint.server.answer = b'{"status": {"allowed": true}}'
    pair = endpoint.authority.client("kubelet-client", ("readers",))
    assert [status(await endpoint.ask(pair=pair)) for _ in range(2)] == [200, 200]
    [asked] = endpoint.server.asked
    assert b'"user":"kubelet-client"' in asked
    assert b'"groups":["readers","system:authenticated"]' in asked
    assert b'"subresource":"proxy","name":"mac-1"' in asked


async def test_another_node_is_not_let_in(endpoint: Endpoint) -> None:
    endpoint.server.answer = b'{"status": {"allowed": false}}'
    pair = endpoint.authority.client("system:node:mac-2", ("system:nodes",))
    answer = await endpoint.ask(pair=pair)
    assert (status(answer), b"nodes/proxy" in body(answer)) == (403, True)
    assert endpoint.shelf.asked == []


async def test_nobody_is_let_in_whom_nobody_can_vouch_for(endpoint: Endpoint) -> None:
    endpoint.server.answer = Unavailable("It failed", why="it is down", fix="Wait")
    answer = await endpoint.ask(pair=endpoint.authority.client("kubelet-client"))
    assert status(answer) == 503


@pytest.mark.parametrize(
    ("method", "target", "code", "says"),
    [
        ("POST", "/exec/ci/mare/runner?command=sh", 501, b"Only logs are served"),
        ("GET", "/attach/ci/mare/runner", 501, b"Only logs are served"),
        ("POST", "/run/ci/mare/runner", 501, b"Only logs are served"),
        ("GET", "/portForward/ci/mare", 501, b"Only logs are served"),
        ("GET", "/pods", 404, b"There is nothing here"),
        ("GET", "/", 404, b"There is nothing here"),
        ("GET", "/logs/", 404, b"There is nothing here"),
        ("GET", "/containerLogs/ci/mare", 404, b"There is nothing here"),
        ("GET", "/containerLogs/ci/..%2Fmare/runner", 404, b"There is nothing here"),
        ("GET", "http://[", 400, b"cannot be read"),
        ("DELETE", PATH, 405, b"use GET"),
        ("GET", f"{PATH}?tailLines=x", 400, b"cannot be shown so"),
        ("GET", f"{PATH}?previous=true", 400, b"a runner runs once"),
        ("GET", f"{PATH} extra", 400, b"not an HTTP/1.1 request"),
        ("GET", "/" + "x" * 20_000, 431, b"too long"),
    ],
)
async def test_everything_else_is_refused_with_a_sentence(
    endpoint: Endpoint, method: str, target: str, code: int, says: bytes
) -> None:
    answer = await endpoint.ask(target, method=method)
    assert (status(answer), says in body(answer)) == (code, True)
    assert endpoint.shelf.asked == []


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (NoSuchLog("No log", why="there is none", fix="Wait"), 400),
        (NoLogYet("No log", why="there is none", fix="Wait"), 400),
        (BadInput("No log", why="the disk is broken", fix="Wait"), 500),
    ],
)
async def test_a_log_that_is_not_there_says_why(
    endpoint: Endpoint, fault: Exception, code: int
) -> None:
    endpoint.shelf.fault = fault
    answer = await endpoint.ask()
    assert (status(answer), body(answer)) == (code, f"{fault}\n".encode())


async def test_a_fault_of_ours_in_one_answer_ends_that_one_alone(endpoint: Endpoint) -> None:
    endpoint.shelf.fault = ZeroDivisionError()
    with suppress(OSError):
        assert await endpoint.ask() == b""
    endpoint.shelf.fault = None
    assert status(await endpoint.ask()) == 200


async def test_a_followed_log_comes_piece_by_piece(endpoint: Endpoint) -> None:
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await endpoint.connect(endpoint.master())
        writer.write(f"GET {PATH}?follow=true HTTP/1.1\r\n\r\n".encode())
        assert b"two\n" in await reader.readuntil(b"two\n")
        endpoint.shelf.goes_on.set()
        assert (await reader.read()).endswith(b"last\n\r\n0\r\n\r\n")
        writer.close()


async def test_who_stops_following_leaves_nothing_behind(endpoint: Endpoint) -> None:
    reader, writer = await endpoint.connect(endpoint.master())
    writer.write(f"GET {PATH}?follow=true HTTP/1.1\r\n\r\n".encode())
    await reader.readuntil(b"two\n")
    assert endpoint.shelf.open_now == 1
    writer.close()
    await eventually(lambda: _value(endpoint.shelf.open_now == 0), within_s=WITHIN_S)


async def _answered(endpoint: Endpoint) -> bool:
    """Ask once. On a busy machine a handshake may take longer than this endpoint lets it."""
    try:
        return status(await endpoint.ask()) == 200
    except (OSError, IndexError):
        return False


async def _value(value: bool) -> bool:  # noqa: FBT001 - what a probe found
    return value


async def test_who_only_looks_gets_in_beside_many_who_follow(tmp_path: Path) -> None:
    bounds = KubeletBounds(connections_max=3, followed_max=2)
    async with Endpoint(tmp_path, bounds=bounds).serving() as endpoint:
        following = []
        for _ in range(2):
            reader, writer = await endpoint.connect(endpoint.master())
            writer.write(f"GET {PATH}?follow=true HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"two\n")
            following.append(writer)
        assert status(await endpoint.ask(f"{PATH}?follow=true")) == 503
        assert status(await endpoint.ask()) == 200
        for writer in following:
            writer.close()


@pytest.mark.parametrize("says", ["nothing at all", "no head after its handshake", "half a head"])
async def test_who_holds_connections_and_asks_nothing_is_ended(tmp_path: Path, says: str) -> None:
    bounds = KubeletBounds(connections_max=2, handshake_s=0.5, head_s=0.5)
    async with Endpoint(tmp_path, bounds=bounds).serving() as endpoint:
        idle: list[object] = []
        for _ in range(2):
            if says == "nothing at all":
                idle.append(socket.create_connection(("127.0.0.1", endpoint.port)))
                continue
            reader, writer = await endpoint.connect(endpoint.master())
            if says == "half a head":
                writer.write(b"GET / HT")
            idle += [reader, writer]
        await eventually(lambda: _answered(endpoint), within_s=WITHIN_S)
        for held in idle:
            if isinstance(held, socket.socket | asyncio.StreamWriter):
                held.close()


async def test_who_does_not_read_is_ended(tmp_path: Path) -> None:
    bounds = KubeletBounds(write_s=0.5)
    async with Endpoint(tmp_path, bounds=bounds).serving() as endpoint:
        endpoint.shelf.endless = b"x" * 65536
        _, writer = await endpoint.connect(endpoint.master())
        writer.write(f"GET {PATH} HTTP/1.1\r\n\r\n".encode())
        await eventually(lambda: _value(endpoint.shelf.ended == 1), within_s=WITHIN_S)
        writer.close()


async def test_many_readers_at_once_all_get_their_log(tmp_path: Path) -> None:
    bounds = KubeletBounds(connections_max=4)
    async with Endpoint(tmp_path, bounds=bounds).serving() as endpoint:
        pair = endpoint.master()
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(endpoint.ask(pair=pair)) for _ in range(40)]
        assert {body(task.result()) for task in asking} == {b"one\ntwo\n"}


async def test_an_old_client_gets_plain_bytes(endpoint: Endpoint) -> None:
    reader, writer = await endpoint.connect(endpoint.master())
    writer.write(f"GET {PATH} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    assert answer.partition(b"\r\n\r\n")[2] == b"one\ntwo\n"
    writer.close()


async def test_an_end_of_the_agent_ends_those_who_follow(tmp_path: Path) -> None:
    async with Endpoint(tmp_path).serving() as endpoint:
        reader, writer = await endpoint.connect(endpoint.master())
        writer.write(f"GET {PATH}?follow=true HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"two\n")
    async with asyncio.timeout(WITHIN_S):
        with suppress(OSError):
            await reader.read()
    writer.close()


async def test_a_port_that_is_taken_is_an_error_at_once(endpoint: Endpoint, tmp_path: Path) -> None:
    other = Endpoint(tmp_path / "other")
    settings = KubeletEndpoint(
        certificate=other.settings.certificate,
        client_ca=other.settings.client_ca,
        listen=Listen("127.0.0.1", endpoint.port),
    )
    gate = Gate("mac-1", None, SystemClock())
    with pytest.raises(CannotListen, match="kubelet-listen"):
        async with serving_kubelet(settings, other.shelf, gate, SystemClock()):
            pass


async def test_an_authority_that_is_none_is_an_error_at_once(tmp_path: Path) -> None:
    other = Endpoint(tmp_path)
    other.authority.file.write_text("nonsense")
    with pytest.raises(BadInput, match="--kubelet-client-ca"):
        async with other.serving():
            pass


# --- Who asks ---------------------------------------------------------------------------------------------------------


def test_a_certificate_without_a_name_names_nobody() -> None:
    assert bearer_of({"subject": ((("organizationName", "system:masters"),),)}) is None
    assert bearer_of(None) is None


async def test_nonsense_from_the_api_server_lets_nobody_in() -> None:
    gate = Gate("mac-1", AskedServer(b"nonsense"), SystemClock())  # type: ignore[arg-type] # it never streams
    with pytest.raises(CannotAsk):
        await gate.lets(Bearer("somebody"))


# --- The certificate --------------------------------------------------------------------------------------------------


class At:
    """A clock that stands."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def test_the_certificate_is_kept_until_shortly_before_its_end(tmp_path: Path) -> None:
    now = SystemClock().now()
    ages = [timedelta(0), LIFE - RENEW_BEFORE - timedelta(hours=1), LIFE - RENEW_BEFORE]
    first, later, last = (
        ServingCertificate(tmp_path, ("mac-1",), At(now + age)).file().read_bytes() for age in ages
    )
    assert first == later
    assert first != last


def test_the_certificate_bears_the_names_it_is_told(tmp_path: Path) -> None:
    clock = SystemClock()
    before = ServingCertificate(tmp_path, ("mac-1",), clock).file().read_bytes()
    file = ServingCertificate(tmp_path, ("10.0.0.7", "mac-1"), clock).file()
    assert file.read_bytes() != before
    assert file.stat().st_mode & 0o777 == 0o600
    found = x509.load_pem_x509_certificate(file.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["mac-1"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]


def test_a_broken_certificate_is_made_anew(tmp_path: Path) -> None:
    certificate = ServingCertificate(tmp_path, ("mac-1",), SystemClock())
    certificate.file().write_text("half a ke")
    assert b"BEGIN CERTIFICATE" in certificate.file().read_bytes()
