"""A wire that counts the writes that go over it, by verb and resource: ``POST pods``, ``PATCH runnerpools/status``."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from remuda.ports.wire import Request, Response, Wire, WireStream

_OK = range(200, 300)


class CountingWire:
    """Counts what the server carried out. ``reached`` waits for a count without asking the server."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.writes: Counter[str] = Counter()
        self._goals: dict[str, tuple[int, asyncio.Event]] = {}

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        answer = await self._wire.send(request, timeout_s=timeout_s)
        if request.method != "GET" and answer.status in _OK:
            what = f"{request.method} {_resource(request.path)}"
            self.writes[what] += 1
            goal = self._goals.get(what)
            if goal is not None and self.writes[what] >= goal[0]:
                goal[1].set()
        return answer

    def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AbstractAsyncContextManager[WireStream]:
        return self._wire.stream(
            request, connect_timeout_s=connect_timeout_s, idle_timeout_s=idle_timeout_s
        )

    async def close(self) -> None:
        await self._wire.close()

    async def reached(self, what: str, count: int) -> None:
        """Wait until there were so many writes of a kind."""
        if self.writes[what] < count:
            self._goals[what] = (count, asyncio.Event())
            await self._goals[what][1].wait()


def _resource(path: str) -> str:
    """Name the resource of a path, with its subresource: ``/api/v1/namespaces/ci/pods/a/status`` is ``pods/status``."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return "/".join((parts[0], *parts[2:]))
