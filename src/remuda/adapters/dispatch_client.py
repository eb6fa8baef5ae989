"""
Dispatch over HTTP. Fills ``remuda.ports.dispatch.Dispatch``.

Every call has one deadline that covers all of it, the body too. Nothing is tried again here: the caller has its own
rhythm. Redirects are not followed, because the token would go along. No error shows the token, whoever wrote its text.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from msgspec import UNSET, Meta, UnsetType

from remuda.model.errors import BadInput
from remuda.ports.dispatch import DispatchError, Signals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remuda.ports.dispatch import Stopped

_BODY_MAX_BYTES = 64 * 1024
_REASON_MAX_CHARS = 300
_COUNT_MAX = 1_000_000
"""More jobs than this for one pool are a fault of who counted: a fleet must not be sized by it."""
_AGE_MAX_S = 366 * 86_400.0
_CONNECTIONS_MAX = 64
"""More than are reported and asked at once: a call that waits for a connection loses its deadline there."""
_NO_TIMEOUTS = aiohttp.ClientTimeout(
    total=None, sock_connect=None, sock_read=None
)  # ours cover all
_LOOK = "Look at the dispatch server's own log"

_Count = Annotated[int, Meta(ge=0, le=_COUNT_MAX)] | UnsetType
_Age = Annotated[float, Meta(ge=0, le=_AGE_MAX_S)] | UnsetType


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchClientSettings:
    base_url: str
    """Where dispatch is, such as ``http://remuda-server.remuda``. A path in it is kept."""

    token_file: Path | None = None
    """Holds the bearer token; read for every call, because Kubernetes replaces it while we run."""

    token: str = field(default="", repr=False)
    """The bearer token itself, where there is no file."""

    signals_timeout_s: float = 3.0
    stopped_timeout_s: float = 2.0

    def __post_init__(self) -> None:
        if fault := _url_fault(self.base_url):
            shown = self.base_url.rpartition("@")[2]  # a password may stand before the @
            raise BadInput(
                f"The address of dispatch, {shown!r}, cannot be used",
                why=fault,
                fix="Write it as https://host:port, or http://host:port inside a cluster",
            )


class _SignalsBody(msgspec.Struct, frozen=True):
    """What dispatch answers. A field that an older server does not know yet counts as 0."""

    queued: _Count = UNSET
    claimed: _Count = UNSET
    occupied: _Count = UNSET
    withheld: _Count = UNSET
    p95_concurrent_last_hour: _Count = UNSET
    oldest_queued_s: _Age = UNSET

    def known(self) -> dict[str, int | float]:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value is not UNSET}


class _RefusalBody(msgspec.Struct, frozen=True):
    error: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes


class DispatchClient:
    """One dispatch server. Opens its session on first use, inside the running loop."""

    def __init__(self, settings: DispatchClientSettings) -> None:
        self._settings = settings
        self._base = settings.base_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def signals(self, pool: str) -> Signals:
        """Return how much work there is for a pool."""
        what = f"The signals of pool {pool} could not be read"
        path = f"/api/v1/pools/{_part(what, pool)}/signals"
        answer = await self._call(what, "GET", path, self._settings.signals_timeout_s)
        return _signals(what, answer.body)

    async def stopped(self, pod: str, report: Stopped) -> None:
        """Report that a runner stopped."""
        what = f"The end of runner {pod} could not be reported"
        path = f"/api/v1/runners/{_part(what, pod)}/stopped"
        body = msgspec.json.encode(
            {
                "ended_at": report.ended_at,
                "exit_code": report.exit_code,
                "reason": report.reason[:_REASON_MAX_CHARS],
            }
        )
        await self._call(what, "POST", path, self._settings.stopped_timeout_s, body)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(
        self, what: str, method: str, path: str, timeout_s: float, body: bytes | None = None
    ) -> _Answer:
        token = self._token(what)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._exchange(what, method, path, token, body)
        except TimeoutError:
            why = f"{self._base} did not answer within {timeout_s:g} s"
            raise DispatchError(what, why=why, fix=_LOOK) from None
        except (aiohttp.ClientError, OSError) as error:
            why = f"{self._base}: {_network_reason(error)}"
            fix = "Check the address of dispatch and that it runs"
            raise DispatchError(what, why=why.rstrip("."), fix=fix) from None
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - that is what 2xx means
            raise _refusal(what, self._base, answer, token)
        return answer

    async def _exchange(
        self, what: str, method: str, path: str, token: str, body: bytes | None
    ) -> _Answer:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with self._open_session().request(
            method, f"{self._base}{path}", data=body, headers=headers, allow_redirects=False
        ) as response:
            return _Answer(response.status, await _bounded(what, response))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX),
                timeout=_NO_TIMEOUTS,
                headers={"User-Agent": "remuda"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _token(self, what: str) -> str:
        file = self._settings.token_file
        fix = "Check the path, its permissions, and what writes it"
        if file is None:
            token, where = self._settings.token, "the setting"
        else:
            where = f"the file {file}"
            try:
                token = file.read_text("ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = (isinstance(error, OSError) and error.strerror) or "it is not text"
                raise DispatchError(what, why=f"the token in {where}: {why}", fix=fix) from None
        if (file is not None and not token) or not (token.isascii() and token.isprintable()):
            raise DispatchError(what, why=f"{where} holds no token", fix=fix)
        return token


@asynccontextmanager
async def dispatch_client(settings: DispatchClientSettings) -> AsyncIterator[DispatchClient]:
    """Return a client that is closed at the end."""
    client = DispatchClient(settings)
    try:
        yield client
    finally:
        await client.close()


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


def _part(what: str, name: str) -> str:
    """Percent-encode a name as one part of a path."""
    if name in {"", ".", ".."}:
        raise DispatchError(what, why=f"{name!r} is no name", fix="This is a bug: report it")
    return quote(name, safe="")


async def _bounded(what: str, response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > _BODY_MAX_BYTES:
            why = f"the answer is longer than {_BODY_MAX_BYTES // 1024} KiB"
            raise DispatchError(what, why=why, fix="Check that the address is that of dispatch")
    return bytes(body)


def _signals(what: str, body: bytes) -> Signals:
    try:
        known = msgspec.json.decode(body, type=_SignalsBody).known()
    except (msgspec.MsgspecError, ValueError) as error:
        why = f"the answer makes no sense ({error})"
        raise DispatchError(what, why=why, fix=_LOOK) from None
    if not known:  # any JSON object would pass for "no work at all", and the pool would shrink
        why = "the answer holds none of the signals"
        raise DispatchError(what, why=why, fix="Check that the address is that of dispatch")
    return msgspec.convert(known, Signals)


def _refusal(what: str, server: str, answer: _Answer, token: str) -> DispatchError:
    why = f"{server} answered {answer.status}"
    if said := _said(answer.body, token):
        why += f" ({said})"
    return DispatchError(what, why=why, fix=_FIXES.get(answer.status // 100 * 100, _LOOK))


_FIXES = {
    300: "Give the address that it redirects to: the token is not sent there by itself",
    400: "Check the controller's token (--dispatch-token-file) and that the address is that of dispatch",
}


def _said(body: bytes, token: str) -> str:
    """Return what an error answer says, cut short, on one line, without our token. It is someone else's text."""
    try:
        refusal = msgspec.json.decode(body, type=_RefusalBody)
    except (msgspec.MsgspecError, ValueError):
        return ""
    text = ": ".join(part for part in (refusal.error, refusal.why) if part)
    if token:
        text = text.replace(token, "…")  # before it is cut: half a token is a secret too
    return "".join(c if c.isprintable() else " " for c in text)[:_REASON_MAX_CHARS].rstrip(". ")


def _network_reason(error: Exception) -> str:
    """Say what went wrong, without what aiohttp adds (headers, an object's address)."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)[:_REASON_MAX_CHARS]
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or type(error.os_error).__name__
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    return type(error).__name__
