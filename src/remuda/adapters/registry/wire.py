"""
One exchange with a registry: where to, as whom, over which redirects. Nothing is tried again here, but for a new token.

Blobs are often kept elsewhere, so redirects of reads are followed; the credential stays behind at every other origin.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from remuda.adapters.registry.auth import Challenge, Credentials, read_challenge, read_token
from remuda.adapters.registry.connections import Answer, Connections, NotReached
from remuda.adapters.registry.errors import BadAnswer, NotAllowed, RegistryUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from remuda.adapters.registry.names import ImageName

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_MAX: Final = 5
_READS: Final = frozenset({"GET", "HEAD"})
_TOKEN_MAX_BYTES: Final = 256 * 1024
_PIECE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How patient to be with registries, and which are spoken to without TLS."""

    plain_hosts: frozenset[str] = frozenset()
    """Hosts, with their ports, that are reached by plain HTTP."""

    credentials: Mapping[str, Credentials] = field(default_factory=dict)
    """By host, with its port."""

    connect_s: float = 15.0
    stall_s: float = 60.0
    """How long a transfer may stand still."""

    tries: int = 5
    """How often in a row something may fail without a byte of progress."""

    manifest_max_bytes: int = 4 * 1024 * 1024
    upload_chunk_bytes: int = 0
    """How much goes up in one request; 0 is everything. Some proxies bound a request's size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request to the registry of an image."""

    what: str
    """What could not be done if this fails, as a sentence's beginning."""
    image: ImageName
    method: str = "GET"
    path: str
    """After ``/v2/<repository>/``; or a whole address that the registry gave us."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[], IO[bytes]] | None = None
    """Opens the body; called again if it must be sent again."""

    @property
    def scope(self) -> str:
        actions = "pull" if self.method in _READS else "pull,push"
        return f"repository:{self.image.repository}:{actions}"


class RegistryWire:
    """Keeps connections and tokens."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._connections = Connections(connect_s=settings.connect_s, stall_s=settings.stall_s)
        self._authorization: dict[tuple[str, str], str] = {}

    @contextlib.asynccontextmanager
    async def exchange(self, ask: Ask) -> AsyncIterator[Answer]:
        """Give the answer, whatever its status but 401. Raises RegistryUnavailable if the network fails."""
        with reached(ask):
            async with contextlib.AsyncExitStack() as stack:
                response = await stack.enter_async_context(self._follow(ask))
                if response.status == HTTPStatus.UNAUTHORIZED:
                    self._check_who_asks(ask, response)
                    await self._authorize(ask, response)
                    await stack.aclose()
                    response = await stack.enter_async_context(self._follow(ask))
                if response.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                    raise self._not_allowed(ask, response)
                yield response

    def url(self, ask: Ask) -> str:
        if "://" in ask.path:
            return ask.path
        return f"{self._origin(ask.image)}/v2/{ask.image.repository}/{ask.path}"

    async def close(self) -> None:
        self._connections.close()

    def _origin(self, image: ImageName) -> str:
        return f"{'http' if self._is_plain(image) else 'https'}://{image.host}"

    def _is_plain(self, image: ImageName) -> bool:
        return image.host in self._settings.plain_hosts

    @contextlib.asynccontextmanager
    async def _follow(self, ask: Ask) -> AsyncIterator[Answer]:
        url = self.url(ask)
        for _ in range(_REDIRECTS_MAX + 1):
            async with self._send(ask, url) as response:
                if response.status not in _REDIRECTS or ask.method not in _READS:
                    yield response
                    return
                url = self.next(ask, url, response.headers.get("location", ""))
        raise BadAnswer(ask.what, why="it is redirected without an end", fix="Check the registry")

    @contextlib.asynccontextmanager
    async def _send(self, ask: Ask, url: str) -> AsyncIterator[Answer]:
        headers = dict(ask.headers)
        known = self._authorization.get((ask.image.host, ask.scope))
        if known and _origin_of(url) == _origin_of(self._origin(ask.image)):
            headers["authorization"] = known
        with contextlib.ExitStack() as stack:
            body = stack.enter_context(ask.body()) if ask.body else None
            async with self._connections.request(ask.method, url, headers, body) as response:
                yield response

    def next(self, ask: Ask, url: str, location: str) -> str:
        """Return the address that an answer sends us to. Raises BadAnswer if nothing of ours may go there."""
        schemes = {"https", "http"} if self._is_plain(ask.image) else {"https"}
        try:
            target = urljoin(url, location)
            scheme, _, _ = _origin_of(target)
        except ValueError:  # half an address, or a port that is none
            target, scheme = location, ""
        if not location or scheme not in schemes:
            why = f"the registry sends us to {target[:200]!r}"
            raise BadAnswer(ask.what, why=why, fix="Check the registry")
        return target

    def _check_who_asks(self, ask: Ask, response: Answer) -> None:
        """Refuse to say who we are to anyone but the registry: whoever else asks names a place of its own for it."""
        if _origin_of(response.url) != _origin_of(self._origin(ask.image)):
            host = urlsplit(response.url).hostname
            why = f"{host}, where it sends us, answered {response.status}"
            raise NotAllowed(ask.what, why=why, fix="Check where the registry keeps its blobs")

    async def _authorize(self, ask: Ask, response: Answer) -> None:
        challenge = read_challenge(response.headers.get_all("www-authenticate", []))
        credentials = self._settings.credentials.get(ask.image.host)
        if challenge is None or (credentials is None and not challenge.is_bearer):
            raise self._not_allowed(ask, response)
        if challenge.is_bearer:
            value = await self._token(ask, challenge, credentials)
        else:
            assert credentials is not None, "looked at above"
            value = credentials.basic
        self._authorization[ask.image.host, ask.scope] = value

    async def _token(self, ask: Ask, challenge: Challenge, credentials: Credentials | None) -> str:
        url = challenge.token_url(plain=self._is_plain(ask.image), scope=ask.scope)
        headers = {} if credentials is None else {"authorization": credentials.basic}
        async with self._connections.request("GET", url, headers) as response:
            if response.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise self._not_allowed(ask, response)
            if response.status != HTTPStatus.OK:
                why = f"its token service answered {response.status}"
                raise RegistryUnavailable(ask.what, why=why, fix="Wait, or check the registry")
            return read_token(await read_bounded(ask, response, _TOKEN_MAX_BYTES))

    def _not_allowed(self, ask: Ask, response: Answer) -> NotAllowed:
        self._authorization.pop((ask.image.host, ask.scope), None)
        known = self._settings.credentials.get(ask.image.host)
        who = f"as {known.username!r}" if known else "without credentials"
        why = f"{ask.image.host} answered {response.status} to a request {who}"
        return NotAllowed(ask.what, why=why, fix="Check the credentials and the repository's name")


@contextlib.contextmanager
def reached(ask: Ask) -> Iterator[None]:
    """Turn a fault of the network into one that names what could not be done."""
    try:
        yield
    except NotReached as error:
        why = f"{ask.image.host}: {error}"
        raise RegistryUnavailable(ask.what, why=why, fix="Check the network to it") from None


async def read_bounded(ask: Ask, response: Answer, max_bytes: int) -> bytes:
    """Read a small body. Raises BadAnswer if it is none."""
    body = bytearray()
    while piece := await response.read(_PIECE_BYTES):
        body += piece
        if len(body) > max_bytes:
            why = f"the answer is longer than {max_bytes} bytes"
            raise BadAnswer(ask.what, why=why, fix="Check the registry")
    return bytes(body)


def _origin_of(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
