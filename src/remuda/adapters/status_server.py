"""
What a process says about itself over HTTP: ``/metrics``, ``/healthz`` and ``/readyz``.

It only reads; whoever can reach it learns the names of pools and how they do, and can change nothing.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from remuda.model.errors import BadInput, RemudaError, Retry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from prometheus_client import CollectorRegistry

_SHUTDOWN_S = 1.0
_PORT_MAX = 65_535


class CannotListen(RemudaError):
    """The address cannot be served on. Only a person can choose another."""

    retry = Retry.NEVER


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to serve. Only this machine can reach the default."""

    host: str = "127.0.0.1"
    port: int = 9464

    @classmethod
    def parse(cls, text: str) -> Listen:
        """Read ``host:port``, ``[v6]:port`` or ``:port`` (every address of this machine); port 0 takes any."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        bracketed = host == f"[{bare}]"
        usable = port.isascii() and port.isdigit() and int(port) <= _PORT_MAX
        if not colon or not usable or (":" in bare and not bracketed) or (bracketed and not bare):
            raise BadInput(
                f"The address {text!r} cannot be served on",
                why="it is not host:port with a port from 0 to 65535",
                fix="Write it like 127.0.0.1:9464, [::1]:9464, or :9464 for every address",
            )
        return cls(bare, int(port))


@dataclass(frozen=True, slots=True)
class Ready:
    """Whether a process can do its work now (waiting for its turn is work), and a word for it."""

    ok: bool
    says: str


@dataclass(frozen=True, slots=True)
class Status:
    """What there is to tell; asked anew for every request."""

    registry: CollectorRegistry
    problems: Callable[[], tuple[str, ...]]
    ready: Callable[[], Ready]


@asynccontextmanager
async def serving_status(listen: Listen, status: Status) -> AsyncIterator[str]:
    """Serve for as long as the block lasts; gives the address. Raises CannotListen before anything else begins."""
    runner = web.AppRunner(_app(status), access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        await _listen(runner, listen)
        host, port = runner.addresses[0][:2]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, listen: Listen) -> None:
    try:
        await web.TCPSite(runner, listen.host or None, listen.port).start()
    except OSError as error:
        raise CannotListen(
            f"Metrics and health cannot be served on {listen.host or '*'}:{listen.port}",
            why=(error.strerror or type(error).__name__).rstrip("."),
            fix="Choose another address with --listen, or stop what uses it",
        ) from None


def _app(status: Status) -> web.Application:
    async def metrics(_: web.Request) -> web.Response:
        body = generate_latest(status.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        problems = status.problems()
        return _said(not problems, "\n".join(problems) or "ok")

    async def readyz(_: web.Request) -> web.Response:
        ready = status.ready()
        return _said(ready.ok, ready.says)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


def _said(ok: bool, text: str) -> web.Response:  # noqa: FBT001 - the two answers that there are
    return web.Response(status=200 if ok else 503, text=f"{text}\n")
