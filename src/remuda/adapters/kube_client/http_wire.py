"""
The wire on aiohttp: one session, one deadline per call, errors of the port and no others.

It retries nothing but a request that was refused with 401 when a newer credential exists: such a request was not done.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import aiohttp

from remuda.model.errors import BadInput
from remuda.ports.kube import Refused, TimedOut, Unavailable
from remuda.ports.wire import Response

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from remuda.adapters.kube_client.connection import Connection, Credential
    from remuda.ports.wire import Request, WireStream

_UNAUTHORIZED = 401
_CONNECTIONS_MAX = 200
_READ_BUFFER_BYTES = 2**18
_REASON_MAX_CHARS = 300
_NO_TIMEOUTS = aiohttp.ClientTimeout(
    total=None, sock_connect=None, sock_read=None
)  # ours cover everything
_HEADERS = {
    "User-Agent": "remuda",
    # Compressing costs an API server more than it saves on any network that a control plane runs on.
    "Accept-Encoding": "identity",
}


class HttpWire:
    """Fills ``remuda.ports.wire.Wire``. Opens its session on first use, inside the running loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._base = connection.server.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._tls: tuple[bytes, ssl.SSLContext | None] | None = None

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        with self._translated(request, timeout_s):
            async with asyncio.timeout(timeout_s):
                answer = await self._answer(request)
                with closing(answer):
                    return Response(answer.status, await answer.read(), _retry_after_s(answer))

    @asynccontextmanager
    async def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AsyncIterator[WireStream]:
        with self._translated(request, connect_timeout_s):
            async with asyncio.timeout(connect_timeout_s):
                answer = await self._answer(request)
        with closing(
            answer
        ):  # outside of the translation: what the caller raises in here is the caller's
            yield _Stream(answer, idle_timeout_s, self._translated(request, idle_timeout_s))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answer(self, request: Request) -> aiohttp.ClientResponse:
        credential = await self._connection.credentials.current()
        answer = await self._ask(request, credential)
        if answer.status != _UNAUTHORIZED:
            return answer
        try:
            newer = await self._connection.credentials.renew(credential)
        except BaseException:
            answer.close()
            raise
        if newer == credential:
            return answer
        answer.close()
        return await self._ask(request, newer)

    async def _ask(self, request: Request, credential: Credential) -> aiohttp.ClientResponse:
        headers = {"Accept": request.accept}
        if request.body:
            headers["Content-Type"] = request.content_type
        if credential.token:
            _check_token(credential.token)
            headers["Authorization"] = f"Bearer {credential.token}"
        query = f"?{urlencode(request.query)}" if request.query else ""
        return await self._open_session().request(
            request.method,
            f"{self._base}{request.path}{query}",
            data=request.body or None,
            headers=headers,
            ssl=self._tls_for(credential),
            server_hostname=self._connection.tls_server_name or None,
            proxy=self._connection.proxy_url or None,
            allow_redirects=False,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX),
                timeout=_NO_TIMEOUTS,
                headers=_HEADERS,
                read_bufsize=_READ_BUFFER_BYTES,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _tls_for(self, credential: Credential) -> ssl.SSLContext | bool:
        """Return the TLS settings, made anew only when the client certificate is another one."""
        if self._tls is None or self._tls[0] != credential.certificate_pem:
            try:
                self._tls = (credential.certificate_pem, self._connection.tls(credential))
            except BadInput as error:
                raise Refused(error.what, why=error.why, fix=error.fix) from None
        return self._tls[1] or True

    def _translated(self, request: Request, timeout_s: float) -> _Translated:
        return _Translated(f"{request.method} {request.path} got no answer", self._base, timeout_s)


class _Translated:
    """Turns what the network raises into the errors of the port. Can be entered again and again."""

    def __init__(self, what: str, server: str, timeout_s: float) -> None:
        self._what = what
        self._server = server
        self._timeout_s = timeout_s

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, sort: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if isinstance(error, TimeoutError):
            why = f"{self._server} was silent for {self._timeout_s:g} s"
            fix = "Look whether it was applied, then try again"
            raise TimedOut(self._what, why=why, fix=fix) from None
        if isinstance(error, (aiohttp.ClientError, OSError)):
            why = f"{self._server}: {_reason(error)[:_REASON_MAX_CHARS] or type(error).__name__}"
            raise Unavailable(self._what, why=why.rstrip("."), fix=_fix(error)) from None


class _Stream:
    """An answer that goes on; every read has the idle time-out."""

    def __init__(
        self, answer: aiohttp.ClientResponse, idle_timeout_s: float, translated: _Translated
    ) -> None:
        self._answer = answer
        self._idle_timeout_s = idle_timeout_s
        self._translated = translated

    @property
    def status(self) -> int:
        return self._answer.status

    async def chunks(self) -> AsyncIterator[bytes]:
        read = (
            self._answer.content.readany
        )  # whatever has come; a line may be longer than any buffer
        while True:
            with self._translated:
                async with asyncio.timeout(self._idle_timeout_s):
                    chunk = await read()
            if not chunk:
                return
            yield chunk


def _check_token(token: str) -> None:
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise Refused(
            "The token cannot be sent",
            why="it holds blanks, line breaks or other characters that no token has",
            fix="Look at what writes it",
        )


def _reason(error: Exception) -> str:
    """Say what went wrong, without what aiohttp adds: a proxy's password, an object's address."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{error.status} {error.message}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    return str(error)


def _retry_after_s(answer: aiohttp.ClientResponse) -> float | None:
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "")))
    except ValueError:
        return None  # absent, or an HTTP date, which an API server does not send


def _fix(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "Check the CA, the server's name in its certificate, and the clock"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "Check the server address and that the API server runs"
    return "Look whether it was applied, then try again"
