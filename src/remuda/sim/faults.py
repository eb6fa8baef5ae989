"""
The Kubernetes wire with faults: the real client talks to the real control plane over a line that fails on purpose.

Every request and every watch of one process goes through its ``Link``; this module spells the line's faults in HTTP.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.ports.kube import TimedOut, Unavailable
from remuda.ports.wire import Request, Response
from remuda.sim.plan import CALM, ROUGH, Call, Fault, Faults, Plan, Scripted
from remuda.sim.streams import FaultyStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from remuda.ports.wire import Wire, WireStream
    from remuda.sim.link import Link

__all__ = ["CALM", "ROUGH", "Fault", "Faults", "FaultyWire", "Plan", "Scripted"]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

_REFUSALS = {
    Fault.CONFLICT: (409, "Conflict", "the object has been modified; please apply your changes again"),
    Fault.EXPIRED: (410, "Expired", "The provided continue parameter or resourceVersion is too old"),
    Fault.THROTTLED: (429, "TooManyRequests", "too many requests, please try again later"),
    Fault.SERVER_ERROR: (500, "InternalError", "Internal error occurred: injected by the simulator"),
}  # fmt: skip


class FaultyWire:
    """
    A wire of one process to an API server. Implements ``remuda.ports.wire.Wire``.

    ``at_once``: the inner wire answers without waiting, as the in-memory control plane does (see ``Link.exchange``).
    """

    def __init__(self, inner: Wire, link: Link, *, at_once: bool = False) -> None:
        self._inner = inner
        self._link = link
        self._at_once = at_once
        self._spelling = HttpSpelling()

    def send(self, request: Request, *, timeout_s: float) -> Coroutine[Any, Any, Response]:
        call = describe(request.method, request.path)
        if call.verb == "create" and self._link.trace.on:
            call = replace(call, object=_created(call, request.body))
        return self._link.exchange(
            call,
            lambda: self._inner.send(request, timeout_s=timeout_s),
            self._spelling,
            timeout_s,
            at_once=self._at_once,
        )

    @asynccontextmanager
    async def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AsyncIterator[WireStream]:
        call = replace(describe(request.method, request.path), verb="watch")
        stream = FaultyStream(call, self._link, request, idle_timeout_s)
        opening = self._inner.stream(
            request, connect_timeout_s=connect_timeout_s, idle_timeout_s=idle_timeout_s
        )
        try:
            await self._link.exchange(
                call, lambda: stream.open(opening), _StreamSpelling(stream), connect_timeout_s
            )
            yield stream
        finally:
            stream.close()

    async def close(self) -> None:
        await self._inner.close()


class _LineFaults:
    """What a client sees of a line that fails: its outcome is unknown."""

    def timed_out(self, call: Call, timeout_s: float) -> Exception:
        return TimedOut(
            f"{call.verb} {call.object}",
            why=f"no answer within {timeout_s:g} s",
            fix="Look whether it was applied, then try again",
        )

    def reset(self, call: Call) -> Exception:
        return Unavailable(
            f"{call.verb} {call.object}",
            why="the connection was reset",
            fix="Look whether it was applied, then try again",
        )


class HttpSpelling(_LineFaults):
    """How HTTP spells what goes wrong with a request."""

    def refusal(self, _call: Call, fault: Fault, plan: Plan) -> Response:
        return refusal(fault, plan)

    def outcome(self, answer: Response) -> str:
        return str(answer.status)


class _StreamSpelling(_LineFaults):
    """The same for the opening of a stream, whose answer is a status; a body follows."""

    def __init__(self, stream: FaultyStream) -> None:
        self._stream = stream

    def refusal(self, _call: Call, fault: Fault, plan: Plan) -> int:
        return self._stream.refuse(refusal(fault, plan))

    def outcome(self, answer: int) -> str:
        return str(answer)


def refusal(fault: Fault, plan: Plan) -> Response:
    """Return the answer of a server that refuses: a Status object."""
    code, reason, message = _REFUSALS[fault]
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    retry_after_s = plan.faults.retry_after_s if fault is Fault.THROTTLED else None
    return Response(code, msgspec.json.encode(status), retry_after_s)


@lru_cache(maxsize=4096)
def describe(method: str, path: str) -> Call:
    """Put a request into the words of the trace: ``patch leases/kube-node-lease/mac-1``."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":  # noqa: PLR2004 - namespaces/NAME/KIND
        namespace, parts = parts[1], parts[2:]
    resource, name = (parts[0], "/".join(parts[1:])) if parts else (path, "")
    verb = _VERBS.get(method, "get" if name else "list")
    named = "/".join(part for part in (resource, namespace, name) if part)
    return Call(verb, resource, named, routine=resource == "leases" and verb != "create")


class _Name(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Name


def _created(call: Call, body: bytes) -> str:
    try:
        name = msgspec.json.decode(body, type=_Named).metadata.name
    except msgspec.DecodeError:
        name = ""
    return f"{call.object}/{name or '?'}"
