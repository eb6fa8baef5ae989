"""
One HTTP exchange with dispatch, for everything that calls it: the operator, agents and pollers.

Every exchange has one deadline that covers all of it, the body too. Nothing is tried again here: the caller has its own
rhythm. Redirects are not followed, because the token would go along. No error shows the token, whoever wrote its text.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from remuda.model.errors import BadInput
from remuda.ports.dispatch import DispatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

REASON_MAX_CHARS = 300
LOOK = "Look at the dispatch server's own log"
_BODY_MAX_BYTES = 64 * 1024
_CONNECTIONS_MAX = 64
"""More than an operator or a poller reports and asks at once."""
_NO_TIMEOUTS = aiohttp.ClientTimeout(
    total=None, sock_connect=None, sock_read=None
)  # ours cover all


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """Where dispatch is, and who asks."""

    base_url: str
    """Such as ``http://remuda-server.remuda``. A path in it is kept."""

    token_file: Path | None = None
    """Holds the bearer token; read for every call, because Kubernetes replaces it while we run."""

    token: str = field(default="", repr=False)
    """The bearer token itself, where there is no file."""

    connections_max: int = _CONNECTIONS_MAX
    """How many calls may be under way at once. One that waits for a connection loses its deadline there."""

    def __post_init__(self) -> None:
        if fault := _url_fault(self.base_url):
            shown = self.base_url.rpartition("@")[2]  # a password may stand before the @
            raise BadInput(
                f"The address of dispatch, {shown!r}, cannot be used",
                why=fault,
                fix="Write it as https://host:port, or http://host:port inside a cluster",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What to ask."""

    what: str
    """What could not be done if this fails, as a sentence's beginning."""
    method: str
    path: str
    timeout_s: float
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    answer_max_bytes: int = _BODY_MAX_BYTES
    bearer: Callable[[], str] | None = field(default=None, repr=False)
    """Says whose token goes along, if it is not that of the settings."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What dispatch said. The body may be a secret."""

    status: int
    body: bytes = field(repr=False)
    retry_after: str = ""
    said: str = ""
    """What an error says about itself, cut short, on one line, without our token."""

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 - that is what 2xx means


class _RefusalBody(msgspec.Struct, frozen=True):
    error: str = ""
    why: str = ""
    reason: str = ""


class DispatchWire:
    """One dispatch server. Opens its session on first use, inside the running loop."""

    def __init__(self, settings: WireSettings) -> None:
        self._settings = settings
        self.base = settings.base_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def exchange(self, call: Call) -> Answer:
        """Ask, and return whatever is answered. Raises DispatchError if nothing whole is."""
        token = self._token(call)
        try:
            async with asyncio.timeout(call.timeout_s):
                return await self._send(call, token)
        except TimeoutError:
            why = f"{self.base} did not answer within {call.timeout_s:g} s"
            raise DispatchError(call.what, why=why, fix=LOOK) from None
        except (aiohttp.ClientError, OSError) as error:
            why = f"{self.base}: {network_reason(error)}"
            fix = "Check the address of dispatch and that it runs"
            raise DispatchError(call.what, why=why.rstrip("."), fix=fix) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(self, call: Call, token: str) -> Answer:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **call.headers}
        if call.body is not None:
            headers.setdefault("Content-Type", "application/json")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with self._open_session().request(
            call.method,
            f"{self.base}{call.path}",
            data=call.body,
            headers=headers,
            allow_redirects=False,
        ) as response:
            body = await _bounded(call, response)
            answer = Answer(response.status, body, response.headers.get("Retry-After", ""))
        return answer if answer.is_ok else replace(answer, said=_said(body, token))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._settings.connections_max),
                timeout=_NO_TIMEOUTS,
                headers={"User-Agent": "remuda"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _token(self, call: Call) -> str:
        what, file = call.what, self._settings.token_file
        fix = "Check the path, its permissions, and what writes it"
        if call.bearer is not None:
            token, where = call.bearer(), "who asks"
        elif file is None:
            token, where = self._settings.token, "the setting"
        else:
            where = f"the file {file}"
            try:
                token = file.read_text("ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = (isinstance(error, OSError) and error.strerror) or "it is not text"
                raise DispatchError(what, why=f"the token in {where}: {why}", fix=fix) from None
        needed = file is not None or call.bearer is not None
        if (needed and not token) or not (token.isascii() and token.isprintable()):
            raise DispatchError(what, why=f"{where} holds no token", fix=fix)
        return token


def part(what: str, name: str) -> str:
    """Percent-encode a name as one part of a path."""
    if name in {"", ".", ".."}:
        raise DispatchError(what, why=f"{name!r} is no name", fix="This is a bug: report it")
    return quote(name, safe="")


def refusal(call: Call, server: str, answer: Answer, *, fix: str = "") -> DispatchError:
    """Return the error for an answer that is none of those that were hoped for."""
    why = f"{server} answered {answer.status}"
    if answer.said:
        why += f" ({answer.said})"
    if 300 <= answer.status < 400:  # noqa: PLR2004 - that is what 3xx means
        fix = "Give the address that it redirects to: the token is not sent there by itself"
    return DispatchError(call.what, why=why, fix=fix or LOOK)


def _url_fault(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "it is not a URL"
    if not usable:
        return "it is not a URL with a host"
    if "@" in parts.netloc or parts.query or parts.fragment:
        return "a user, a query or a fragment stands in it"
    return ""


async def _bounded(call: Call, response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > call.answer_max_bytes:
            why = f"the answer is longer than {call.answer_max_bytes // 1024} KiB"
            raise DispatchError(
                call.what, why=why, fix="Check that the address is that of dispatch"
            )
    return bytes(body)


def _said(body: bytes, token: str) -> str:
    """Return what an error answer says, cut short, on one line, without our token. It is someone else's text."""
    try:
        said = msgspec.json.decode(body, type=_RefusalBody)
    except (msgspec.MsgspecError, ValueError):
        return ""
    text = ": ".join(each for each in (said.error, said.why or said.reason) if each)
    if token:
        text = text.replace(token, "…")  # before it is cut: half a token is a secret too
    return "".join(c if c.isprintable() else " " for c in text)[:REASON_MAX_CHARS].rstrip(". ")


def network_reason(error: Exception) -> str:
    """Say what went wrong, without what aiohttp adds (headers, an object's address)."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)[:REASON_MAX_CHARS]
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or type(error.os_error).__name__
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    return type(error).__name__
