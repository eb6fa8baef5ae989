"""
A watch that loses, delays and withholds events.

The network reads the real stream whatever the actor does, and hands its lines on late, in order, or not at all. What
the reader gets is always a stream that a real server and a real network could have sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import msgspec

from remuda.model.errors import RemudaError
from remuda.ports.kube import TimedOut, Unavailable
from remuda.sim.link import Direction
from remuda.sim.plan import Call, Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from remuda.ports.wire import Request, Response, WireStream
    from remuda.sim.link import Link

OK = 200
NEWS = frozenset({"ADDED", "MODIFIED", "DELETED"})
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
FREEZES = {Fault.FREEZE_1: 1, Fault.FREEZE_10: 10}
RETRY_S = 0.5
"""How often the network tries again to get through a partition."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] = {}


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Line(msgspec.Struct):
    type: str
    object: _Object


@dataclass(slots=True)
class _Held:
    """A line on its way to the reader. One that gives way is dropped when a newer one of its object comes."""

    line: bytes
    key: tuple[str, str]
    at: float
    gives_way: bool = False


@dataclass(slots=True)
class _End:
    error: Exception | None


class FaultyStream:
    """One watch. Implements ``remuda.ports.wire.WireStream``; ``open`` runs on the network's side."""

    def __init__(self, call: Call, link: Link, request: Request, idle_timeout_s: float) -> None:
        self.status = 0
        query = dict(request.query)
        self._events = query.get("watch") in ("1", "true")
        self._initial = query.get("sendInitialEvents") == "true"
        self._call = call
        self._link = link
        self._idle_timeout_s = idle_timeout_s
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[int] = self._loop.create_future()
        self._pump: asyncio.Task[None] | None = None
        self._on_the_way: deque[_Held] = deque()
        self._arrived: asyncio.Queue[bytes | _End] = asyncio.Queue()
        self._partial = b""
        self._frozen_left = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    # --- the network's side -------------------------------------------------------------------------------------

    async def open(self, opening: AbstractAsyncContextManager[WireStream]) -> int:
        """Open the real stream and go on reading it. Returns its status."""
        self._pump = self._link.spawn(self._read(opening), f"{self._call.object} stream")
        self.status = await self._opened
        if self._closed:  # the caller gave up while this was on its way
            self.close()
        return self.status

    def refuse(self, response: Response) -> int:
        """Be a stream that was refused: a status and its body, and nothing more."""
        self.status = response.status
        self._arrived.put_nowait(response.body)
        self._arrived.put_nowait(_End(None))
        return self.status

    def close(self) -> None:
        self._closed = True
        if self._pump is not None:
            self._pump.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def _read(self, opening: AbstractAsyncContextManager[WireStream]) -> None:
        try:
            async with opening as stream:
                self._opened.set_result(stream.status)
                events = self._events and stream.status == OK
                async for chunk in stream.chunks():
                    if events:
                        self._take(chunk)
                    else:
                        self._arrived.put_nowait(chunk)
            self._end(None)
        except RemudaError as error:
            if self._opened.done():
                self._end(error)
            else:
                self._opened.set_exception(error)

    def _take(self, chunk: bytes) -> None:
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for line in lines:
            if line.strip() and not self._closed:
                self._take_line(line + b"\n")

    def _take_line(self, line: bytes) -> None:
        event = msgspec.json.decode(line, type=_Line)
        key = event.object.metadata.namespace, event.object.metadata.name
        # A bookmark is no news: chance leaves it alone, or the rates would depend on how often one comes.
        # Neither are the objects of a streaming list, which no server leaves out.
        news = event.type in NEWS and not self._initial
        fault = self._link.plan.event(self._call.resource) if news else None
        if INITIAL_EVENTS_END in event.object.metadata.annotations:
            self._initial = False
        if fault is not None:
            name = "/".join((self._call.resource, *(part for part in key if part)))
            self._link.strike(Call(f"see-{event.type.lower()}", self._call.resource, name), fault)
        self._give_way(key)
        if fault is Fault.DROP:
            return
        if fault in (Fault.CUT, Fault.EXPIRE):
            self._cut(fault)
            return
        self._freeze(fault)
        self._send(_Held(line, key, self._due(fault), gives_way=fault is Fault.COALESCE))

    def _give_way(self, key: tuple[str, str]) -> None:
        self._on_the_way = deque(
            held for held in self._on_the_way if not (held.gives_way and held.key == key)
        )

    def _cut(self, fault: Fault | None) -> None:
        if fault is Fault.EXPIRE:
            self._arrived.put_nowait(_EXPIRED)
        self._end(None)
        if self._pump is not None:
            self._pump.cancel()

    def _freeze(self, fault: Fault | None) -> None:
        if fault is Fault.FREEZE_ALL:
            self._frozen_left = inf
        elif fault in FREEZES and self._frozen_left == 0:
            self._frozen_left = (
                FREEZES[fault] + 1.0
            )  # this event counts, and so does the one that ends it
        self._frozen_left = max(0.0, self._frozen_left - 1)

    def _due(self, fault: Fault | None) -> float:
        late_s = self._link.plan.latency_s()
        if fault in (Fault.DELAY, Fault.COALESCE):
            late_s += self._link.plan.late_s()
        after = self._on_the_way[-1].at if self._on_the_way else 0.0
        return max(after, self._loop.time() + late_s)

    def _send(self, held: _Held) -> None:
        self._on_the_way.append(held)
        self._wake_at(held.at)

    def _wake_at(self, when: float) -> None:
        if self._timer is None or self._timer.cancelled():
            self._timer = self._loop.call_at(when, self._deliver, context=self._link.network)

    def _deliver(self) -> None:
        self._timer = None
        now = self._loop.time()
        if self._link.partition & Direction.ANSWERS:
            self._wake_at(now + RETRY_S)
            return
        due = b""
        while self._on_the_way and self._frozen_left == 0 and self._on_the_way[0].at <= now:
            due += self._on_the_way.popleft().line
        if due:
            self._hand_over(due)
        if self._on_the_way and self._frozen_left == 0:
            self._wake_at(self._on_the_way[0].at)

    def _hand_over(self, lines: bytes) -> None:
        if self._link.plan.torn():
            self._arrived.put_nowait(lines[: len(lines) // 2])
            lines = lines[len(lines) // 2 :]
        self._arrived.put_nowait(lines)

    def _end(self, error: Exception | None) -> None:
        # What is still on its way is lost with the connection; the reader starts again from what it has seen.
        self._on_the_way.clear()
        self._arrived.put_nowait(_End(error))

    # --- the reader's side --------------------------------------------------------------------------------------

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            chunk = await self._next()
            if isinstance(chunk, _End):
                if chunk.error is not None:
                    raise chunk.error
                return
            yield chunk

    async def _next(self) -> bytes | _End:
        if self._link.severed:
            raise Unavailable(
                f"watch {self._call.object}", why="the process is gone", fix="Start it again"
            )
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                return await self._arrived.get()
        except TimeoutError:
            raise TimedOut(
                f"watch {self._call.object}",
                why=f"no news for {self._idle_timeout_s:g} s",
                fix="Watch again",
            ) from None


_EXPIRED = (
    msgspec.json.encode(
        {
            "type": "ERROR",
            "object": {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "too old resource version: injected by the simulator",
                "reason": "Expired",
                "code": 410,
            },
        }
    )
    + b"\n"
)
