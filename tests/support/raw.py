"""Requests as any client may send them, for what the ``Kube`` port does not express: PUT, odd bodies, Tables."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda.ports.wire import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.ports.wire import Wire

Json = Any
"""Whatever a server answers."""

TIMEOUT_S = 20.0
JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True)
class Answer:
    """A status code and the decoded body."""

    status: int
    body: Json

    @property
    def refusal(self) -> tuple[int, str, str]:
        """The parts of a refusal that clients act on or show: code, reason, message."""
        assert self.body["kind"] == "Status", self.body
        assert self.body.get("code") == self.status, self.body
        return self.status, self.body.get("reason", ""), self.body["message"]

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        causes = self.body["details"].get("causes", [])
        return [(c.get("field", ""), c.get("reason", ""), c.get("message", "")) for c in causes]

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    def ok(self) -> Json:
        assert self.status in (200, 201), (self.status, self.body)
        return self.body


class Events:
    """The events of one raw watch, one at a time."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    async def next(self, within_s: float = TIMEOUT_S) -> Json:
        """Return the next event; None when the server has ended the watch."""
        async with asyncio.timeout(within_s):
            while b"\n" not in self._rest:
                try:
                    self._rest += await anext(self._chunks)
                except StopAsyncIteration:
                    return None
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    async def until(self, change: str, name: str) -> list[Json]:
        """Collect up to and including the given event. Bookmarks are left out."""
        seen: list[Json] = []
        while True:
            event = await self.next()
            assert event is not None, f"the watch ended before {change} {name}; it had {seen}"
            if event["type"] == "BOOKMARK":
                continue
            seen.append(event)
            if (event["type"], event["object"]["metadata"].get("name")) == (change, name):
                return seen


class Raw:
    """A wire, with JSON in and out."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        **query: str,
    ) -> Answer:
        encoded = body if isinstance(body, bytes) else b"" if body is None else _encode(body)
        request = Request(method, path, tuple(query.items()), encoded, content_type, accept)
        response = await self._wire.send(request, timeout_s=TIMEOUT_S)
        return Answer(response.status, _decode(response.body))

    async def get(self, path: str, *, accept: str = JSON, **query: str) -> Answer:
        return await self.send("GET", path, accept=accept, **query)

    async def post(self, path: str, body: Json, **query: str) -> Answer:
        return await self.send("POST", path, body, **query)

    async def put(self, path: str, body: Json, **query: str) -> Answer:
        return await self.send("PUT", path, body, **query)

    async def merge(self, path: str, body: Json, **query: str) -> Answer:
        return await self.send("PATCH", path, body, content_type=MERGE, **query)

    async def json_patch(self, path: str, *operations: Json) -> Answer:
        return await self.send("PATCH", path, list(operations), content_type=JSON_PATCH)

    async def strategic(self, path: str, body: Json) -> Answer:
        return await self.send("PATCH", path, body, content_type=STRATEGIC)

    async def delete(self, path: str, body: Json = None, **query: str) -> Answer:
        return await self.send("DELETE", path, body, **query)

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Events]:
        request = Request("GET", path, (("watch", "true"), *query.items()))
        async with self._wire.stream(
            request, connect_timeout_s=TIMEOUT_S, idle_timeout_s=TIMEOUT_S
        ) as stream:
            assert stream.status == 200, [chunk async for chunk in stream.chunks()]
            yield Events(stream.chunks())


def _encode(body: Json) -> bytes:
    return json.dumps(body).encode()


def _decode(body: bytes) -> Json:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()
