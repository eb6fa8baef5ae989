"""
HTTP/1.1 to registries, over connections that are kept: each is read by a thread, and ended by whoever waits for it.

Layers are gigabytes. One thread reads a layer and has it hashed, unpacked and written on the spot: the event loop has
nothing to do per packet, no bytes wait for another thread, and mostly no lock of Python's is held. A thread that reads,
or shakes hands, does so on a socket that we hold: who is cancelled shuts the socket, and that ends the thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Final, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

_THREADS_MAX: Final = 16
_PIECE_BYTES: Final = 256 * 1024
"""So small that it is still in the processor's cache when it is hashed and unpacked."""
_SEND_BYTES: Final = 256 * 1024
_ALWAYS: Final = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "remuda"}
"""Nothing is packed on the way: a digest is of the bytes as they come."""
_TARGET_SAFE: Final = "%/:=&?~#+!$,;'@()*[]"
"""What stays as it is in an address that a registry gave us; some are signed to the byte."""

_PORTS: Final = {"http": 80, "https": 443}

_Origin: TypeAlias = tuple[str, str, int]
T = TypeVar("T")


class NotReached(Exception):
    """The network, or what speaks at its other end, failed. The text says how."""


class Answer:
    """The head of an answer, and its body to be read."""

    def __init__(self, link: _Link, response: http.client.HTTPResponse, url: str) -> None:
        self.status, self.headers, self.url = response.status, response.headers, url
        self._link, self._response = link, response
        self._fault: NotReached | None = None

    async def pour(self, max_bytes: int, take: Callable[[bytes], object]) -> int:
        """
        Have so many of the next bytes taken, fewer at the end only, and return how many; none after the end.

        ``take`` is called in the thread that reads, piece by piece. If the body breaks off, what had come is taken all
        the same and counted, and then NotReached is raised.
        """
        return await self._link.run(lambda: self._pour(max_bytes, take))

    async def read(self, max_bytes: int) -> bytes:
        """Return the next bytes of a body that is small."""
        parts: list[bytes] = []
        await self.pour(max_bytes, parts.append)
        return b"".join(parts)

    @property
    def is_over(self) -> bool:
        """Whether it was read to its end, so that another may follow on its connection."""
        response = self._response
        return not response.will_close and (response.length == 0 or response.isclosed())

    def _pour(self, max_bytes: int, take: Callable[[bytes], object]) -> int:
        poured = 0
        while poured < max_bytes and (piece := self._piece(max_bytes - poured, poured)):
            poured += len(piece)
            take(piece)
        return poured

    def _piece(self, max_bytes: int, poured: int) -> bytes:
        """Return what comes next. A fault waits for the next call if this one has something to count."""
        if self._fault is None:
            try:
                with _told():
                    return self._part(min(max_bytes, _PIECE_BYTES))
            except NotReached as fault:
                self._fault = fault
        if poured:
            return b""
        raise self._fault

    def _part(self, max_bytes: int) -> bytes:
        part = self._response.read1(max_bytes)
        if not part and self._response.length:
            raise ConnectionError(f"it breaks off {self._response.length} bytes before its end")
        return part


class Connections:
    """Those of one client. It is one event loop's."""

    def __init__(self, *, connect_s: float, stall_s: float) -> None:
        self._connect_s, self._stall_s = connect_s, stall_s
        self._idle: dict[_Origin, list[_Link]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._trust: ssl.SSLContext | None = None

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: IO[bytes] | None = None
    ) -> AsyncIterator[Answer]:
        """Ask, and give the answer whatever its status is; redirects are not followed. Raises NotReached."""
        with _told():
            origin, target = _place(url)
        link = self._kept(origin) or await self._opened(*origin)
        kept = False
        try:
            sent = {**_ALWAYS, **headers}
            response = await link.run(lambda: _asked(link.http, method, target, sent, body))
            with contextlib.closing(response):
                answer = Answer(link, response, url)
                yield answer
                kept = answer.is_over
        finally:
            if kept:
                self._idle.setdefault(origin, []).append(link)
            else:
                link.close()

    def close(self) -> None:
        for links in self._idle.values():
            for link in links:
                link.close()
        self._idle.clear()
        if self._threads:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def _kept(self, origin: _Origin) -> _Link | None:
        """Return a connection that waits for a question. One on which something came meanwhile was ended there."""
        links = self._idle.get(origin, [])
        while links:
            link = links.pop()
            if not link.is_readable():
                return link
            link.close()
        return None

    async def _opened(self, scheme: str, host: str, port: int) -> _Link:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="registry")
        http_: http.client.HTTPConnection
        if scheme == "https":
            http_ = http.client.HTTPSConnection(
                host, port, context=self._trusted(), blocksize=_SEND_BYTES
            )
        else:
            http_ = http.client.HTTPConnection(host, port, blocksize=_SEND_BYTES)
        http_.auto_open = 0  # it is opened here and nowhere else
        with _told():
            plain = await self._connected(host, port)
        link = _Link(http_, plain, self._threads)
        try:
            if scheme == "https":
                await link.secure(self._trusted(), host)
            link.patience(self._stall_s)
        except BaseException:
            link.close()
            raise
        return link

    async def _connected(self, host: str, port: int) -> socket.socket:
        """Try each address of a host in its turn."""
        loop = asyncio.get_running_loop()
        fault: OSError = ConnectionError("it has no address")
        places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in places:
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(0)
                async with asyncio.timeout(self._connect_s):
                    await loop.sock_connect(made, address)
            except OSError as error:
                made.close()
                fault = error
            except BaseException:
                made.close()
                raise
            else:
                made.settimeout(self._connect_s)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made
        raise fault

    def _trusted(self) -> ssl.SSLContext:
        if self._trust is None:
            import ssl  # noqa: PLC0415 - reads all the authorities of the host: only who speaks TLS waits for it

            self._trust = ssl.create_default_context()
            self._trust.set_alpn_protocols(["http/1.1"])
        return self._trust


class _Link:
    """One connection, and the threads that may wait on it."""

    def __init__(
        self, http_: http.client.HTTPConnection, sock: socket.socket, threads: ThreadPoolExecutor
    ) -> None:
        self.http, self._threads = http_, threads
        self._use(sock)

    def _use(self, sock: socket.socket) -> None:
        self._sock = self.http.sock = (
            sock  # held here too: HTTP lets go of one that is to be closed
        )

    async def secure(self, trust: ssl.SSLContext, host: str) -> None:
        with _told():
            wrapped = trust.wrap_socket(
                self._sock, server_hostname=host, do_handshake_on_connect=False
            )
        self._use(wrapped)
        await self.run(_told()(wrapped.do_handshake))

    def patience(self, seconds: float) -> None:
        self._sock.settimeout(seconds)

    async def run(self, act: Callable[[], T]) -> T:
        """Do in a thread what waits for the other end. Cancelled, the connection is ended, and the thread with it."""
        begun = self._threads.submit(act)
        work = asyncio.wrap_future(begun)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            begun.cancel()  # where no thread was free yet
            self._shut()
            while not work.done():  # nobody may read from whatever gets this socket's number next
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # seen: nobody is left to be told
            raise

    def is_readable(self) -> bool:
        look = select.poll()
        look.register(self._sock, select.POLLIN)
        return bool(look.poll(0))

    def close(self) -> None:
        self._shut()
        self.http.close()
        self._sock.close()

    def _shut(self) -> None:
        """Wake whoever reads or writes. Of a socket's own kind: that of TLS would first take its keys away."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


def _place(url: str) -> tuple[_Origin, str]:
    """Return whom to ask and for what. Raises ValueError for half an address, or a port that is none."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("it is no address of HTTP")
    target = parts._replace(scheme="", netloc="", fragment="").geturl()
    port = parts.port or _PORTS[parts.scheme]
    return (parts.scheme, parts.hostname, port), quote(target or "/", safe=_TARGET_SAFE)


def _asked(
    link: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: IO[bytes] | None,
) -> http.client.HTTPResponse:
    with _told():
        # Who refuses a body may do so before all of it came, and its answer says why.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.request(method, target, body, headers)
        return link.getresponse()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Name whatever the network, TLS or HTTP says in one way."""
    try:
        yield
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise NotReached(str(error)[:300] or type(error).__name__) from None
