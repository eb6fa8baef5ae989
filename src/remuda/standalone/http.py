"""
The HTTPS front: turns HTTP into requests for the ``ApiServer`` and its answers back into HTTP. Nothing is decided here.

Users are known by client certificate or bearer token. Every request has a deadline but the ones that go on; those end
when the client goes away, and all of them when the server stops. No token and no body is ever logged.
"""

from __future__ import annotations

import asyncio
import ssl
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import structlog
from aiohttp import web

from remuda.ports.wire import Request
from remuda.standalone import protobuf
from remuda.standalone.api import BODY_SIZE_MAX, content_type_of, is_log, is_stream
from remuda.standalone.errors import StatusError, bad_request, unauthorized
from remuda.standalone.requests import find_target, timeout_s
from remuda.standalone.store import encode
from remuda.standalone.users import ANONYMOUS, User

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage

    from remuda.standalone.api import ApiServer
    from remuda.standalone.logs import PodLogs
    from remuda.standalone.pki import Pki

LOOPBACK = "127.0.0.1"
_BEARER = "bearer "
_log = structlog.get_logger("remuda.standalone.http")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How the front serves."""

    host: str = LOOPBACK
    """The address to listen on. Only this machine, unless somebody says otherwise."""

    port: int = 6443
    """The port to listen on; 0 takes any that is free."""

    request_timeout_s: float = 60.0
    """How long a request may take, watches and logs left out."""

    shutdown_timeout_s: float = 5.0
    """How long requests under way may take to finish once the server stops."""

    idle_timeout_s: float = 300.0
    """How long a connection is kept open without a request."""


class HttpFront:
    """Serves one ``ApiServer`` over HTTPS. ``start``, then ``stop``."""

    def __init__(
        self, api: ApiServer, pki: Pki, settings: HttpSettings, logs: PodLogs | None = None
    ) -> None:
        self._api, self._settings, self._logs = api, settings, logs
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._tls.verify_mode = ssl.CERT_OPTIONAL  # whoever shows no certificate may show a token
        self.use_certificates(pki)
        self._runner: web.ServerRunner | None = None
        self._open_ended: set[asyncio.Timeout] = set()
        self._stopping = False

    def use_certificates(self, pki: Pki) -> None:
        """Show these certificates, and trust those of this authority, from the next connection on."""
        self._tls.load_cert_chain(pki.path("server.crt"), pki.path("server.key"))
        self._tls.load_verify_locations(pki.path("ca.crt"))

    async def start(self) -> int:
        """Listen; return the port. OSError if the address cannot be had."""
        server = web.Server(
            self._serve,
            request_factory=_bounded_request,
            handler_cancellation=True,  # a client that goes away ends its watch at once
            access_log=None,
            keepalive_timeout=self._settings.idle_timeout_s,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=self._settings.shutdown_timeout_s)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            self._settings.host,
            self._settings.port,
            ssl_context=self._tls,
        )
        try:
            await site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        return int(self.addresses[0][1])

    @property
    def addresses(self) -> list[Any]:
        """Where it listens: host and port of each socket, none before ``start``."""
        return [] if self._runner is None else self._runner.addresses

    async def stop(self) -> None:
        """Stop listening, end watches and logs properly, and let the other requests finish."""
        self._stopping = True
        now = asyncio.get_running_loop().time()
        for scope in self._open_ended:
            if not scope.expired():
                scope.reschedule(now)
        if self._runner is not None:
            await self._runner.cleanup()

    def _deadline_s(self, request: Request) -> float:
        """Return how long a request may take: no longer than its sender waits for it, and no longer than we allow."""
        asked_s = timeout_s(dict(request.query).get("timeout", ""))
        return min(asked_s or self._settings.request_timeout_s, self._settings.request_timeout_s)

    # --- One request --------------------------------------------------------------------------------------------------

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        try:
            user = self._user(http)
            request = await self._read(http)
            if is_stream(request):
                return await self._answer_for_long(http, request, user)
            async with asyncio.timeout(self._deadline_s(request)):
                answer = await self._api.handle(request, user)
        except StatusError as refusal:
            return _refused(refusal)
        except TimeoutError:
            text = "Timeout: request did not complete within the allotted timeout"
            return _refused(StatusError(504, "Timeout", text))
        except (ConnectionError, web.HTTPException, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - the edge: one bad request must not end the server
            # The plain trace, never the variables in it: one of them may be a token.
            trace = "".join(traceback.format_exception(error))
            _log.error("request failed", method=http.method, path=http.path, trace=trace)
            text = f"Internal error occurred: {type(error).__name__}"
            return _refused(StatusError(500, "InternalError", text))
        headers = {}
        if answer.retry_after_s is not None:
            headers["Retry-After"] = f"{answer.retry_after_s:.0f}"
        return _response(answer.status, answer.body, content_type_of(request, answer), headers)

    def _user(self, http: web.BaseRequest) -> User:
        header = http.headers.get("Authorization", "")
        if header[: len(_BEARER)].lower() == _BEARER:
            return self._api.authenticate(header[len(_BEARER) :].strip())
        transport = http.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        return ANONYMOUS if not certificate else certificate_user(certificate)

    async def _read(self, http: web.BaseRequest) -> Request:
        url = http.rel_url
        raw_query = url.raw_query_string
        body = b""
        try:
            if http.body_exists:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    body = await http.read()
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {BODY_SIZE_MAX}"
            raise StatusError(413, "RequestEntityTooLarge", text) from None
        content_type = http.headers.get("Content-Type", "application/json")
        if content_type == protobuf.CONTENT_TYPE and body:
            body, content_type = _as_json(body)
        return Request(
            method=http.method,
            path=url.raw_path,
            query=tuple(parse_qsl(raw_query, keep_blank_values=True)) if raw_query else (),
            body=body,
            content_type=content_type,
            accept=http.headers.get("Accept", "application/json"),
        )

    # --- Requests that go on ------------------------------------------------------------------------------------------

    async def _answer_for_long(
        self, http: web.BaseRequest, request: Request, user: User
    ) -> web.StreamResponse:
        if is_log(request.path) and self._logs is not None:
            return await self._send_log(http, request, user)
        async with self._api.stream(request, user) as stream:
            answer = web.StreamResponse(status=stream.status)
            answer.content_type = "application/json"
            await self._send(http, answer, stream.chunks())
            return answer

    async def _send_log(
        self, http: web.BaseRequest, request: Request, user: User
    ) -> web.StreamResponse:
        assert self._logs is not None, "asked before"
        if user.is_anonymous:
            raise unauthorized()
        pod = find_target(self._api.rest.kinds, request.path)
        async with self._logs.open(pod.namespace, pod.name, dict(request.query)) as log:
            answer = web.StreamResponse()
            answer.content_type = "text/plain"
            await self._send(http, answer, log.chunks())
            return answer

    async def _send(
        self, http: web.BaseRequest, answer: web.StreamResponse, chunks: AsyncIterator[bytes]
    ) -> None:
        """Send chunks as they come, until they end or the server stops; both end the answer properly."""
        answer.enable_chunked_encoding()
        await answer.prepare(http)
        scope = asyncio.timeout(0 if self._stopping else None)
        self._open_ended.add(scope)
        try:
            async with scope:
                async for chunk in chunks:
                    await answer.write(chunk)
        except TimeoutError:
            if not self._stopping:
                raise
        finally:
            self._open_ended.discard(scope)
        await answer.write_eof()


def _bounded_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=BODY_SIZE_MAX
    )


def _as_json(body: bytes) -> tuple[bytes, str]:
    """Turn a protobuf body into JSON, and say what it is then; one that is not understood stays as it is."""
    try:
        decoded = protobuf.decode(body)
    except ValueError as error:
        raise bad_request(f"the body of the request cannot be decoded: {error}") from None
    return (
        (body, protobuf.CONTENT_TYPE) if decoded is None else (encode(decoded), "application/json")
    )


def _response(status: int, body: bytes, content_type: str, headers: dict[str, str]) -> web.Response:
    return web.Response(status=status, body=body, headers={"Content-Type": content_type, **headers})


def _refused(refusal: StatusError) -> web.Response:
    return _response(refusal.code, encode(refusal.status()), "application/json", {})


def certificate_user(certificate: dict[str, Any]) -> User:
    """Read who a verified client certificate is: the common name, in the groups that its organizations name."""
    subject = [pair for names in certificate.get("subject", ()) for pair in names]
    groups = tuple(value for key, value in subject if key == "organizationName")
    name = next((value for key, value in subject if key == "commonName"), "")
    return User(name, groups=(*groups, "system:authenticated")) if name else ANONYMOUS
