"""
One HTTP exchange with an API server: the single place where the network can be swapped.

The real client (``adapters.kube_client``) is written over this, so production (aiohttp), the in-memory control plane
and the simulator's faults all run the same client code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager


class Request(msgspec.Struct, frozen=True):
    """What is asked. ``path`` is absolute and already percent-encoded; ``query`` is not yet encoded."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = "application/json"
    accept: str = "application/json"

    def __repr__(self) -> str:
        """Leave the body out: it may hold a token or a Secret, and reprs end in logs."""
        return f"Request({self.method} {self.path}, {len(self.body)} bytes)"


class Response(msgspec.Struct, frozen=True):
    """What was answered, read to its end."""

    status: int
    body: bytes
    retry_after_s: float | None = None

    def __repr__(self) -> str:
        return f"Response({self.status}, {len(self.body)} bytes)"


class WireStream(Protocol):
    """An answer that goes on: a watch, or a log. ``status`` is known before the first chunk."""

    @property
    def status(self) -> int: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield bytes as they come, cut anywhere. Ends when the server ends the answer."""
        ...


class Wire(Protocol):
    """How requests reach an API server. Raises only the errors of ``remuda.ports.kube``."""

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        """Send and read the whole answer. After ``timeout_s`` raise TimedOut: it may have been applied."""
        ...

    def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AbstractAsyncContextManager[WireStream]:
        """Open an answer that goes on. No chunk for ``idle_timeout_s`` means the peer is gone."""
        ...

    async def close(self) -> None: ...
