"""
GitHub over HTTP: one request, one answer. Nothing is logged, and nothing is tried again here.

(aiohttp itself repeats a GET or a DELETE once if a connection that was kept open turns out to be dead. Never a POST.)

Redirects are not followed: the token would go along. gidgethub writes the URL and the headers, aiohttp carries them.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec
from gidgethub.sansio import accept_format, create_headers, format_url

from remuda.ports.forge import ForgeUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.dispatch.metrics import DispatchMetrics

API_VERSION: Final = "2022-11-28"
_CONNECTIONS_MAX: Final = 100
_REASON_MAX: Final = 300
_MOVED: Final = frozenset({301, 302, 307, 308})
_NO_TIMEOUTS: Final = aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None)
_NEXT: Final = re.compile(r'<([^>]{1,2000})>\s*;\s*rel="?next"?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request. ``path`` is a URI template as GitHub's reference writes it."""

    operation: str
    """What it is for, in one word: a label of the metrics."""
    method: str = "GET"
    path: str
    parts: Mapping[str, str | int] = field(default_factory=dict)
    body: Mapping[str, object] | None = None
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Credential:
    """Who asks: the App itself, or one of its installations."""

    token: str = field(repr=False)
    is_app: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What GitHub answered. A body may hold a token or a job config."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def next(self, parameter: str) -> str:
        """Return one parameter of the next page's address, empty on the last; the address is never followed."""
        found = _NEXT.search(self.headers.get("link", ""))
        if found is None:
            return ""
        try:
            return parse_qs(urlsplit(found.group(1)).query).get(parameter, [""])[0]
        except ValueError:
            return ""

    def moved_to(self, api_url: str) -> str:
        """Return the path where a renamed repository's thing is now, if that is at the same API and nowhere else."""
        place = self.headers.get("location", "")
        if self.status not in _MOVED or not place.startswith(f"{api_url}/repositories/"):
            return ""
        return place.removeprefix(api_url) if place.isascii() and place.isprintable() else ""


class Place(Protocol):
    """Where to ask, and how much of an answer to read."""

    @property
    def api_url(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def body_max_bytes(self) -> int: ...


class GithubWire:
    """Opens its session on first use, inside the running loop."""

    def __init__(self, settings: Place, metrics: DispatchMetrics | None = None) -> None:
        self._settings = settings
        self._metrics = metrics
        self._session: aiohttp.ClientSession | None = None

    async def send(self, what: str, ask: Ask, credential: Credential | None) -> Reply:
        """Return the answer, whatever its status; raise ForgeUnavailable if there is none."""
        try:
            reply: Reply | tuple[str, str] = await self._exchange(ask, credential)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reply = ("unreachable", network_reason(error))
        except asyncio.CancelledError:
            # The deadline of the whole call stands above; what was under way may have been done.
            self._count(ask, "timeout")
            raise
        if isinstance(
            reply, tuple
        ):  # raised out here: what aiohttp raised holds the request's headers
            self._count(ask, reply[0])
            why = f"{self._settings.host}: {reply[1]}".rstrip(".")
            raise ForgeUnavailable(what, why=why, fix="Check the network, and GitHub's status page")
        self._count(ask, str(reply.status))
        return reply

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange(self, ask: Ask, credential: Credential | None) -> Reply | tuple[str, str]:
        url = format_url(ask.path, dict(ask.parts), base_url=self._settings.api_url)
        body = None if ask.body is None else msgspec.json.encode(ask.body)
        async with self._open_session().request(
            ask.method, url, data=body, headers=_headers(ask, credential), allow_redirects=False
        ) as response:
            content = bytearray()
            while chunk := await response.content.readany():
                content += chunk
                if len(content) > self._settings.body_max_bytes:
                    return ("too_long", "the answer is longer than anybody should send")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, headers, bytes(content))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX),
                timeout=_NO_TIMEOUTS,  # ours cover everything
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _count(self, ask: Ask, status: str) -> None:
        if self._metrics is not None:
            self._metrics.forge_request(ask.operation, status)


def _headers(ask: Ask, credential: Credential | None) -> dict[str, str]:
    who: dict[str, str] = {}
    if credential is not None:
        who = {"jwt" if credential.is_app else "oauth_token": credential.token}
    headers = create_headers("remuda", accept=accept_format(), **who)
    headers["x-github-api-version"] = API_VERSION
    if ask.etag:
        headers["if-none-match"] = ask.etag
    if ask.body is not None:
        headers["content-type"] = "application/json"
    return headers


def network_reason(error: Exception) -> str:
    """Say what went wrong, without what aiohttp adds (headers, an object's address)."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)[:_REASON_MAX]
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or type(error.os_error).__name__
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    return type(error).__name__
