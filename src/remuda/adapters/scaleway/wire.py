"""
Scaleway over HTTP: one request, one answer or one error. Nothing is logged, and nothing is tried again here.

The token goes into a header and nowhere else: no text of an error holds a header, a body that was sent, or more than a
little of what came back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

from remuda.ports.machines import (
    MachineBusy,
    MachineGone,
    MachinesError,
    MachinesRefused,
    MachinesThrottled,
    MachinesUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.model.secret import Secret

API_URL: Final = "https://api.scaleway.com"
_BODY_MAX_BYTES: Final = 8 * 1024 * 1024
_SAID_MAX: Final = 200
_RETRY_MAX_S: Final = 600.0
_OK, _MULTIPLE, _TOO_MANY, _SERVER = 200, 300, 429, 500
_LOOK: Final = "Look at the provider's status page; it is tried again"
_LATER: Final = "Nothing to do: it is tried again"
_RETURNED: Final = "Nothing to do if it was returned"
_KEY: Final = "Check the API key: it needs AppleSiliconFullAccess in the project of the Macs"
_KINDS: Final[dict[int, tuple[type[MachinesError], str]]] = {
    401: (MachinesRefused, _KEY),
    403: (MachinesRefused, _KEY),
    404: (MachineGone, _RETURNED),
    409: (MachineBusy, _LATER),
    410: (MachineGone, _RETURNED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalewaySettings:
    token: Secret
    """The secret key of an API key. Shown in the header ``X-Auth-Token``."""
    api_url: str = API_URL
    project: str = ""
    """Only machines of this project are seen. Empty: all that the key may see."""
    timeout_s: float = 30.0
    page_size: int = 100
    pages_max: int = 50
    """More than this is no list of Macs: it is a server that never ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request."""

    what: str
    """What failed, if it does: the beginning of a sentence."""
    method: str = "GET"
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] | None = None


class _Said(msgspec.Struct, frozen=True):
    """What the provider's errors have in common. All of it may be missing."""

    type: str = ""
    message: str = ""
    precondition: str = ""


class ScalewayWire:
    """Opens its session on first use, inside the running loop."""

    def __init__(self, settings: ScalewaySettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def send(self, ask: Ask) -> bytes:
        """Return the body of a good answer; raise what the other answers mean."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                status, headers, body = await self._exchange(ask)
        except TimeoutError:
            why = f"there was no answer within {self._settings.timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = _network_reason(error)
        else:
            if _OK <= status < _MULTIPLE:
                return body
            raise _refusal(ask, status, headers, body)
        # Raised out here: what aiohttp raised holds the request, and that the token.
        raise MachinesUnavailable(ask.what, why=why, fix=_LOOK)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange(self, ask: Ask) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"X-Auth-Token": self._settings.token.reveal().decode("ascii")}
        body = None
        if ask.body is not None:
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode(ask.body)
        async with self._open().request(
            ask.method,
            f"{self._settings.api_url.rstrip('/')}{ask.path}",
            params=dict(ask.query),
            data=body,
            headers=headers,
            allow_redirects=False,  # the token would go along
        ) as response:
            content = bytearray()
            while chunk := await response.content.readany():
                content += chunk
                if len(content) > _BODY_MAX_BYTES:
                    raise ValueError("the answer is longer than anybody should send")
            return (
                response.status,
                {k.lower(): v for k, v in response.headers.items()},
                bytes(content),
            )

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _refusal(ask: Ask, status: int, headers: Mapping[str, str], body: bytes) -> MachinesError:
    said = _said(body)
    why = f"the provider answered {status}" + (f": {said}" if said else "")
    if status == _TOO_MANY:
        fix, wait_s = "Nothing to do: it is tried again, more slowly", _retry_after_s(headers)
        return MachinesThrottled(ask.what, why=why, fix=fix, retry_after_s=wait_s)
    kind, fix = _KINDS.get(status, (MachinesError, "Check the Host's zone and type"))
    if status >= _SERVER:
        kind, fix = MachinesUnavailable, _LOOK
    elif kind is MachinesError and _is_transient(body):
        kind, fix = MachineBusy, _LATER
    return kind(ask.what, why=why, fix=fix)


def _is_transient(body: bytes) -> bool:
    """Say whether a request came at the wrong moment: the provider says so with a 4xx of its own."""
    try:
        return msgspec.json.decode(body, type=_Said).type in {"transient_state", "locked"}
    except (msgspec.MsgspecError, ValueError):
        return False


def _said(body: bytes) -> str:
    try:
        said = msgspec.json.decode(body, type=_Said)
    except (msgspec.MsgspecError, ValueError):
        return ""
    text = " ".join((said.message or said.type).split())
    return "".join(c for c in text if c.isprintable())[:_SAID_MAX].rstrip(".")


def _retry_after_s(headers: Mapping[str, str]) -> float:
    try:
        return min(_RETRY_MAX_S, max(1.0, float(headers.get("retry-after", "30"))))
    except ValueError:
        return 30.0


def _network_reason(error: Exception) -> str:
    """Say what went wrong, without what aiohttp adds (headers, an object's address)."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)[:_SAID_MAX]
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or type(error.os_error).__name__
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    return type(error).__name__
