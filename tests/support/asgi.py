"""A client that calls an ASGI application directly: it can go at any moment, be slow, and look at what it was sent."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.types import ASGIApp, Message

Json = Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Json:
        return json.loads(self.body)


@dataclass
class Sent:
    """A request to send. ``body`` may be bytes or anything that JSON can say."""

    method: str
    path: str
    token: str = ""
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def scope(self) -> dict[str, Any]:
        headers = {"host": "test", **self.headers}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        if self.body is not None and "content-type" not in headers:
            headers["content-type"] = "application/json"
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": unquote(self.path),
            "raw_path": self.path.encode(),
            "query_string": urlencode(self.query, doseq=True).encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("test", 80),
        }

    def raw(self) -> bytes:
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Stream:
    """An answer as it arrives."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self._asked = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.news = asyncio.Event()
        self.gone = asyncio.Event()
        """Set it and the client has gone."""
        self.reading = asyncio.Event()
        """Clear it and the client reads no more: whoever sends has to wait."""
        self.reading.set()
        self.ended = False

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._sent.raw(), "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.chunks.append(message.get("body", b""))
            self.ended = not message.get("more_body", False)
        self.news.set()

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def events(self) -> list[tuple[int, Json]]:
        """Return the Server-Sent Events so far: id and data."""
        found = []
        for block in self.body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[1:])
            if "data" in fields:
                found.append((int(fields["id"]), json.loads(fields["data"])))
        return found


async def call(app: ASGIApp, sent: Sent) -> Answer:
    stream = Stream(sent)
    await app(sent.scope(), stream.receive, stream.send)
    return Answer(stream.status, stream.headers, stream.body)


@asynccontextmanager
async def streaming(app: ASGIApp, sent: Sent) -> AsyncIterator[Stream]:
    """Have an answer arrive while the block goes on; its client goes at the end."""
    stream = Stream(sent)
    async with asyncio.TaskGroup() as group:
        group.create_task(app(sent.scope(), stream.receive, stream.send), name="request")  # type: ignore[arg-type]
        try:
            yield stream
        finally:
            stream.gone.set()
            stream.reading.set()
