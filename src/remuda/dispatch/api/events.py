"""
The audit as Server-Sent Events. The id of an event is its audit number: who comes back with it misses nothing.

The stream ends at once when its client goes, and by itself after a while; no client can make another one wait.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from remuda.dispatch.api.auth import Reader
from remuda.dispatch.api.bodies import AuditBody
from remuda.dispatch.api.feed import AuditFeed
from remuda.dispatch.api.inputs import NUMBER_MAX, Named
from remuda.dispatch.api.problems import Problem, documented
from remuda.model.job import AuditEntry
from remuda.ports.database import DatabaseError

_Number = Annotated[
    int | None,
    Query(
        ge=0,
        le=NUMBER_MAX,
        description="Begin behind this number; nothing begins with what happens next",
    ),
]
_LastId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=NUMBER_MAX,
        description="Likewise, as EventSource sends it; it wins",
    ),
]
_EVENT: Final = {
    "type": "object",
    "description": "One event",
    "required": ["id", "data"],
    "properties": {
        "id": {"type": "string", "description": "The number of the audit entry"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/AuditBody"},
        },
    },
}
_HELLO = b"retry: 2000\n: remuda\n\n"
_HEARTBEAT = b": still here\n\n"


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which entries a client wants."""

    job_id: str | None = None
    pool: str | None = None
    tenant: str | None = None

    def takes(self, entry: AuditEntry) -> bool:
        return (
            self.job_id in {None, entry.job_id}
            and self.pool in {None, entry.pool}
            and self.tenant in {None, entry.tenant}
        )


class EventStream(Response):
    """A response that is sent piece by piece and ends when its client goes."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], *, send_s: float) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(headers=headers, media_type="text/event-stream")
        del self.headers["content-length"]
        self._pieces = pieces
        self._send_s = send_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._send(send), name="events: send")
            watching = group.create_task(_gone(receive, sending), name="events: watch the client")
            sending.add_done_callback(lambda _: watching.cancel())

    async def _send(self, send: Send) -> None:
        try:
            async with aclosing(
                self._pieces
            ) as pieces:  # whoever stops us, the listener leaves at once
                async for piece in pieces:
                    body: Message = {"type": "http.response.body", "body": piece, "more_body": True}
                    async with asyncio.timeout(self._send_s):
                        await send(body)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, OSError):
            return  # it does not read any more; the connection is the server's to close


async def _gone(receive: Receive, sending: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    sending.cancel()


class EventRoutes:
    """The stream."""

    def __init__(self, feed: AuditFeed) -> None:
        self._feed = feed

    async def stream_events(
        self,
        _: Reader,
        after: _Number = None,
        last_event_id: _LastId = None,
        job_id: Named = None,
        pool: Named = None,
        tenant: Named = None,
    ) -> Response:
        """
        Follow the audit as Server-Sent Events.

        Each event's id is its number and its data an audit entry as JSON. Numbers grow, with gaps.
        """
        if self._feed.closed or self._feed.is_full:
            why = "this replica goes" if self._feed.closed else "enough clients listen already"
            fix = "Come again in a moment"
            raise Problem(503, "No stream can be opened now", why, fix, {"Retry-After": "2"})
        begin = last_event_id if last_event_id is not None else after
        pieces = self._pieces(begin, EventFilter(job_id, pool, tenant))
        return EventStream(pieces, send_s=self._feed.settings.send_s)

    async def _pieces(self, after: int | None, wanted: EventFilter) -> AsyncGenerator[bytes, None]:
        loop, settings = asyncio.get_running_loop(), self._feed.settings
        ends_at = loop.time() + settings.lasts_s
        yield _HELLO
        beats_at = loop.time() + settings.heartbeat_s
        with self._feed.listening() as listener:
            while not self._feed.closed and loop.time() < ends_at:
                try:
                    async with asyncio.timeout_at(min(ends_at, beats_at)):
                        entries = await self._feed.next(listener, after)
                except TimeoutError:
                    told = _HEARTBEAT
                except DatabaseError:
                    return  # it comes again with the last id that it saw
                else:
                    told = b"".join(rendered(entry) for entry in entries if wanted.takes(entry))
                if told:
                    yield told
                    beats_at = loop.time() + settings.heartbeat_s


@lru_cache(maxsize=2048)
def rendered(entry: AuditEntry) -> bytes:
    """Return an entry as an event; many clients are sent the same."""
    return f"id: {entry.number}\ndata: {AuditBody.of(entry).model_dump_json()}\n\n".encode()


def event_router(feed: AuditFeed) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["audit"])
    stream: dict[int | str, dict[str, Any]] = {
        200: {
            "description": "A stream without an end of its own",
            "content": {"text/event-stream": {"schema": _EVENT}},
        }
    }
    router.add_api_route(
        "/events",
        EventRoutes(feed).stream_events,
        summary="Follow the audit",
        response_class=Response,
        responses={**stream, **documented(401, 403, 422)},
    )
    return router
