"""
The agent's HTTPS endpoint, as a kubelet's, for ``kubectl logs`` alone: ``GET /containerLogs/NAMESPACE/POD/CONTAINER``.

One request per connection, answered and closed: so no request ever meets a connection that is about to close. A
connection counts from its first byte, handshake included; how many there are, how long a head may take and how slowly a
log may be read is bounded. Nobody without a good certificate is let in; an agent without an authority lets in nobody.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import structlog

from remuda.adapters.kubelet_gate import CannotAsk, Gate, bearer_of
from remuda.adapters.status_server import CannotListen, Listen
from remuda.agent.log_reading import NoLogYet, NoSuchLog, parse_request
from remuda.model.errors import BadInput, RemudaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator
    from pathlib import Path

    from remuda.adapters.serving_certificate import ServingCertificate
    from remuda.agent.log_reading import LogRequest
    from remuda.ports.clock import Clock

log = structlog.get_logger(__name__)

KUBELET_PORT: Final = 10250
_BACKLOG: Final = 128
_ACCEPT_AGAIN_S: Final = 1.0
_REFRESH_S: Final = 60.0
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LOGS: Final = "containerLogs"
_NOT_FOR_VMS: Final = frozenset({"exec", "attach", "run", "portForward", "cri", "checkpoint"})


class Logs(Protocol):
    """Where logs come from: ``remuda.agent.log_reading.LogReading``."""

    async def open(
        self, namespace: str, pod: str, request: LogRequest
    ) -> AsyncGenerator[bytes, None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletBounds:
    """How much the endpoint does at once, and how long it waits for others."""

    connections_max: int = 64
    followed_max: int = 48
    """Of these, how many may follow a log, which takes as long as a job: who only looks must get in."""
    handshake_s: float = 10.0
    head_s: float = 10.0
    head_bytes_max: int = 16 * 1024
    write_s: float = 30.0
    """How long a client may take nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletEndpoint:
    """Where the endpoint is, what it shows, and whom it believes."""

    certificate: ServingCertificate
    client_ca: Path | None
    """The authority of the API server's kubelet client certificate. None: nobody is let in."""
    listen: Listen = Listen("", KUBELET_PORT)  # noqa: RUF009 - frozen
    bounds: KubeletBounds = field(default_factory=KubeletBounds)


@asynccontextmanager
async def serving_kubelet(
    endpoint: KubeletEndpoint, logs: Logs, gate: Gate, clock: Clock
) -> AsyncIterator[int]:
    """Serve for as long as the block lasts; gives the port. Raises CannotListen or BadInput before anything begins."""
    tls = _Tls(endpoint)
    with _listening(endpoint.listen) as bound:
        server = _Server(endpoint, tls, logs, gate)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(server.accept(bound, group, clock), name="kubelet endpoint"),
                group.create_task(tls.keep_fresh(clock), name="kubelet certificates"),
            ]
            try:
                yield int(bound.getsockname()[1])
            finally:
                for task in (*tasks, *server.tasks):
                    task.cancel()


def _listening(listen: Listen) -> socket.socket:
    everywhere = not listen.host and socket.has_dualstack_ipv6()
    v6 = everywhere or ":" in listen.host
    try:
        bound = socket.create_server(
            (listen.host, listen.port),
            family=socket.AF_INET6 if v6 else socket.AF_INET,
            backlog=_BACKLOG,
            dualstack_ipv6=everywhere,
        )
    except OSError as error:
        raise CannotListen(
            f"Logs cannot be served on {listen.host or '*'}:{listen.port}",
            why=(error.strerror or type(error).__name__).rstrip("."),
            fix="Choose another address with --kubelet-listen, or stop what uses it",
        ) from None
    bound.setblocking(False)  # noqa: FBT003 - the standard library's own
    return bound


class _Tls:
    """The endpoint's certificates, read again when they changed. A handshake takes what is there at its time."""

    def __init__(self, endpoint: KubeletEndpoint) -> None:
        self._endpoint = endpoint
        self._read = b""
        self.context = self._made()

    async def keep_fresh(self, clock: Clock) -> None:
        while True:
            await clock.sleep(_REFRESH_S)
            try:
                self.context = self._made()
            except BadInput as error:
                log.warning("certificates not renewed", error=str(error))

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        file = self._endpoint.certificate.file()
        authority = self._endpoint.client_ca
        try:
            context.load_cert_chain(file)
            if authority is not None:
                context.load_verify_locations(authority)
                # Who shows none is refused by the handshake itself and costs no more than that.
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise BadInput(
                f"The certificates {file} and {authority} cannot be used",
                why=str(error),
                fix="Give --kubelet-client-ca the authority that signs the API server's kubelet client certificate",
            ) from None
        return context


class _Refusal(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    target: str
    chunked: bool


class _Server:
    def __init__(self, endpoint: KubeletEndpoint, tls: _Tls, logs: Logs, gate: Gate) -> None:
        self._tls, self._logs, self._gate = tls, logs, gate
        self._bounds = endpoint.bounds
        self._open = endpoint.client_ca is not None
        self._slots = asyncio.Semaphore(endpoint.bounds.connections_max)
        self._followed = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def accept(self, bound: socket.socket, group: asyncio.TaskGroup, clock: Clock) -> None:
        """Take connections, never more than there are slots: the rest wait outside."""
        loop = asyncio.get_running_loop()
        while True:
            await self._slots.acquire()
            try:
                connection, _ = await loop.sock_accept(bound)
            except OSError as error:  # no more file descriptors, say
                self._slots.release()
                log.warning("no connection taken", error=error.strerror)
                await clock.sleep(_ACCEPT_AGAIN_S)
                continue
            except BaseException:
                self._slots.release()
                raise
            task = group.create_task(self._served(connection), name="kubelet connection")
            self.tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._slots.release()

    async def _served(self, connection: socket.socket) -> None:
        try:
            reader, writer = await self._streams(connection)
        except (OSError, TimeoutError) as error:
            log.info("log reader refused", error=str(error) or "no handshake in time")
            return
        try:
            await self._answered(reader, writer)
            # What was written last may still be on its way: cut off now, it would never come to a slow reader.
            writer.close()
            async with asyncio.timeout(self._bounds.write_s):
                await writer.wait_closed()
        except (OSError, TimeoutError) as error:
            log.info("log reader lost", error=str(error) or "it read too slowly")
        except Exception:  # the edge: a fault in one answer must not end the agent
            log.exception("log not served")
        finally:
            writer.transport.abort()

    async def _streams(
        self, connection: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=self._bounds.head_bytes_max)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._tls.context,
            ssl_handshake_timeout=self._bounds.handshake_s,
            ssl_shutdown_timeout=self._bounds.write_s,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._bounds.head_s):
                head = await _head(reader)
            await self._let_in(writer)
            asked = _asked(head)
            with self._place(asked[2]):
                await self._sent(reader, writer, head, asked)
        except _Refusal as refusal:
            await self._write(writer, _refusal(refusal))

    @contextmanager
    def _place(self, request: LogRequest) -> Iterator[None]:
        """Take a place among those who follow a log, for as long as the block lasts."""
        if not request.follow:
            yield
            return
        if self._followed >= self._bounds.followed_max:
            raise _Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self._followed} logs are being followed on this host, and no more may be. Try without --follow.",
            )
        self._followed += 1
        try:
            yield
        finally:
            self._followed -= 1

    async def _let_in(self, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            raise _Refusal(
                HTTPStatus.UNAUTHORIZED,
                "This agent shows logs to nobody: without --kubelet-client-ca it cannot know who asks.",
            )
        bearer = bearer_of(writer.get_extra_info("peercert"))
        if bearer is None:
            raise _Refusal(HTTPStatus.UNAUTHORIZED, "Your certificate names no user.")
        try:
            allowed = await self._gate.lets(bearer)
        except CannotAsk as error:
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        if not allowed:
            raise _Refusal(
                HTTPStatus.FORBIDDEN,
                f"{bearer.user} may not read logs here: it lacks the right to get nodes/proxy.",
            )

    async def _sent(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        head: _Head,
        asked: tuple[str, str, LogRequest],
    ) -> None:
        try:
            pieces = await self._logs.open(*asked)
        except (NoSuchLog, NoLogYet) as error:
            # Not 404: of that one an API server tells the person who asked none of our words.
            raise _Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        except RemudaError as error:
            raise _Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from None
        async with aclosing(pieces):
            await self._write(writer, _ok(chunked=head.chunked))
            async with asyncio.TaskGroup() as group:
                tasks = {
                    group.create_task(self._pump(writer, pieces, head), name="log"),
                    group.create_task(_gone(reader), name="reader of a log"),
                }
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()

    async def _pump(
        self, writer: asyncio.StreamWriter, pieces: AsyncGenerator[bytes, None], head: _Head
    ) -> None:
        try:
            async for piece in pieces:
                await self._write(writer, _chunk(piece) if head.chunked else piece)
            if head.chunked:
                await self._write(writer, _chunk(b""))
        except (OSError, TimeoutError) as error:
            # Cut off, not ended: so the client knows that this was not all.
            log.info("log reader lost", error=str(error) or "it read too slowly")
            writer.transport.abort()

    async def _write(self, writer: asyncio.StreamWriter, content: bytes) -> None:
        writer.write(content)
        async with asyncio.timeout(self._bounds.write_s):
            await writer.drain()


async def _gone(reader: asyncio.StreamReader) -> None:
    """Return when the client has gone. Whatever it still says is read and forgotten."""
    with suppress(OSError):
        while await reader.read(4096):
            pass


async def _head(reader: asyncio.StreamReader) -> _Head:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("it went before it asked") from None
    except asyncio.LimitOverrunError:
        raise _Refusal(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too long."
        ) from None
    parts = raw.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(parts) != 3 or parts[2] not in {"HTTP/1.1", "HTTP/1.0"}:  # noqa: PLR2004 - method, target, version
        raise _Refusal(HTTPStatus.BAD_REQUEST, "This is not an HTTP/1.1 request.")
    return _Head(parts[0], parts[1], chunked=parts[2] == "HTTP/1.1")


def _asked(head: _Head) -> tuple[str, str, LogRequest]:
    """Read which log is wanted, or say why there is none."""
    try:
        url = urlsplit(head.target)
    except ValueError:
        raise _Refusal(HTTPStatus.BAD_REQUEST, "The address cannot be read.") from None
    parts = [unquote(part) for part in url.path.split("/")[1:]]
    if parts[0] in _NOT_FOR_VMS:
        raise _Refusal(
            HTTPStatus.NOT_IMPLEMENTED,
            f"{parts[0]} does not reach into a runner's VM: it is cut off from its host. Only logs are served.",
        )
    if parts[0] != _LOGS or len(parts) != 4 or not all(map(_NAME.fullmatch, parts[1:])):  # noqa: PLR2004 - see above
        raise _Refusal(
            HTTPStatus.NOT_FOUND,
            "There is nothing here. This agent serves /containerLogs/NAMESPACE/POD/CONTAINER only.",
        )
    if head.method != "GET":
        raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "A log can only be read: use GET.")
    try:
        request = parse_request(dict(parse_qsl(url.query, keep_blank_values=True)))
    except (BadInput, ValueError) as error:
        raise _Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
    return parts[1], parts[2], request


def _refusal(refusal: _Refusal) -> bytes:
    body = f"{refusal.text}\n".encode()
    lines = (
        f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


def _ok(*, chunked: bool) -> bytes:
    framing = ("Transfer-Encoding: chunked",) if chunked else ()
    lines = ("HTTP/1.1 200 OK", "Content-Type: text/plain", *framing, "Connection: close")
    return "\r\n".join((*lines, "", "")).encode()


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)
