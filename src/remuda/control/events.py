"""
Kubernetes Events: what we did to an object and why, where ``kubectl describe`` shows it.

Recording never waits and never fails: Events are for people, and what cannot be written is counted and dropped. The
same thing said again raises a count instead of adding an Event, and one object cannot flood the others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from remuda.kube.core import EVENT, Event, EventSource, ObjectReference
from remuda.kube.meta import ObjectMeta, Resource
from remuda.kube.patches import MergePatch
from remuda.kube.times import whole_seconds
from remuda.ports.kube import KubeError, NotFound, Throttled

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.kube.kinds import Kind
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Resource)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MESSAGE_MAX_BYTES = 1024
_NAME_MAX_CHARS = 230
_THROTTLED_MIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    component: str
    """Who speaks, such as ``remuda-controller``."""

    instance: str = ""
    """Which of several, such as the Pod's or the Node's name."""

    waiting_max: int = 1000
    """How many may wait to be written; more are dropped."""

    remembered_max: int = 4096
    """How many written Events, and how many objects' allowances, are remembered."""

    repeat_window_s: float = 600.0
    """Within this the same thing said again counts up; after it, it is a new Event."""

    burst: int = 25
    """How many different things can be said about one object at once."""

    refill_s: float = 30.0
    """After how long one more can be said."""

    write_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class _Said:
    """What makes two Events the same."""

    about: ObjectReference
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class _Pending:
    said: _Said
    first_at: datetime
    last_at: datetime
    times: int = 1


@dataclass(frozen=True, slots=True)
class _Written:
    name: str
    count: int
    at: float


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float


class EventRecorder:
    """``record`` from anywhere in the loop; ``run`` writes."""

    def __init__(self, kube: Kube, settings: EventSettings, *, clock: Clock, ids: Ids) -> None:
        self._kube, self._clock, self._ids = kube, clock, ids
        self._settings = settings
        self._waiting: OrderedDict[_Said, _Pending] = OrderedDict()
        self._written: _Recent[_Said, _Written] = _Recent(settings.remembered_max)
        self._allowances: _Recent[ObjectReference, _Allowance] = _Recent(settings.remembered_max)
        self._wake = asyncio.Event()
        self.dropped = 0
        """How many were not written: too many at once, or the server refused."""

    def record(
        self, kind: Kind[T], about: T, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Say something about an object. ``reason`` is one CamelCase word, ``message`` a sentence."""
        reference = ObjectReference(
            api_version=kind.api_version,
            kind=kind.name,
            namespace=about.namespace,
            name=about.name,
            uid=about.uid,
        )
        said = _Said(reference, "Warning" if warning else "Normal", reason, _bounded(message))
        now = whole_seconds(self._clock.now())
        if pending := self._waiting.get(said):
            pending.times += 1
            pending.last_at = now
        elif len(self._waiting) >= self._settings.waiting_max or not self._allowed(said):
            self.dropped += 1
        else:
            self._waiting[said] = _Pending(said, now, now)
            self._wake.set()

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            await self._wake.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write all that waits; for the end of a process, under the caller's deadline."""
        self._wake.clear()
        while self._waiting:
            _, pending = self._waiting.popitem(last=False)
            try:
                async with asyncio.timeout(self._settings.write_timeout_s):
                    await self._write(pending)
            except asyncio.CancelledError:
                self._put_back(pending)  # for a last flush; said twice is better than never
                raise
            except Throttled as error:
                self._put_back(pending)
                await self._clock.sleep(max(_THROTTLED_MIN_S, error.retry_after_s))
            except (KubeError, TimeoutError) as error:
                self.dropped += pending.times
                log.info("event dropped", reason=pending.said.reason, error=str(error))

    def _put_back(self, pending: _Pending) -> None:
        """Have it written next, with what was said of it meanwhile."""
        if (meanwhile := self._waiting.get(pending.said)) is not None:
            pending.times += meanwhile.times
            pending.last_at = meanwhile.last_at
        self._waiting[pending.said] = pending
        self._waiting.move_to_end(pending.said, last=False)
        self._wake.set()

    def _allowed(self, said: _Said) -> bool:
        """Take one from the object's allowance; what only counts up is free."""
        now = self._clock.monotonic()
        if self._repeated(said, now) is not None:
            return True
        burst, refill_s = float(self._settings.burst), self._settings.refill_s
        allowance = self._allowances.get(said.about) or _Allowance(burst, now)
        allowance.left = min(burst, allowance.left + (now - allowance.at) / refill_s)
        allowance.at = now
        self._allowances.put(said.about, allowance)
        if allowance.left < 1:
            return False
        allowance.left -= 1
        return True

    def _repeated(self, said: _Said, now: float) -> _Written | None:
        written = self._written.get(said)
        if written is None or now - written.at > self._settings.repeat_window_s:
            return None
        return written

    async def _write(self, pending: _Pending) -> None:
        now = self._clock.monotonic()
        if (written := self._repeated(pending.said, now)) is not None:
            try:
                await self._count_up(pending, written)
            except NotFound:
                pass  # Events expire on the server: say it anew
            else:
                self._written.put(
                    pending.said, _Written(written.name, written.count + pending.times, now)
                )
                return
        event = self._event(pending)
        await self._kube.create(EVENT, event)
        self._written.put(pending.said, _Written(event.name, pending.times, now))

    async def _count_up(self, pending: _Pending, written: _Written) -> None:
        last_at = pending.last_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        changes = MergePatch({"count": written.count + pending.times, "lastTimestamp": last_at})
        namespace = _namespace(pending.said.about)
        await self._kube.patch(EVENT, written.name, changes, namespace=namespace)

    def _event(self, pending: _Pending) -> Event:
        about, settings = pending.said.about, self._settings
        name = f"{about.name[:_NAME_MAX_CHARS]}.{self._ids.suffix(16)}"
        return Event(
            metadata=ObjectMeta(name=name, namespace=_namespace(about)),
            involved_object=about,
            type=pending.said.type,
            reason=pending.said.reason,
            message=pending.said.message,
            count=pending.times,
            source=EventSource(component=settings.component, host=settings.instance),
            first_timestamp=pending.first_at,
            last_timestamp=pending.last_at,
            reporting_component=settings.component,
            reporting_instance=settings.instance,
        )


class _Recent(Generic[K, V]):
    """A dict of what was used last, bounded."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size_max:
            self._values.popitem(last=False)


def _namespace(about: ObjectReference) -> str:
    return about.namespace or "default"  # Events about objects without a namespace live there


def _bounded(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= _MESSAGE_MAX_BYTES:
        return message
    return encoded[: _MESSAGE_MAX_BYTES - 3].decode(errors="ignore") + "…"
