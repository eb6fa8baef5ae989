"""
One client's watch: what it selected of a kind, as JSON lines, from a version on.

A watch only queues what happened, and spells it out when the client takes it: a thousand clients that do not read hold
one copy of each object. One that is too slow loses its watch (it resumes from the last version it saw) and never holds
up a writer. Times run on the loop's own clock, which the simulator virtualises.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from remuda.kube.selectors import EVERY_FIELD, EVERY_LABEL, FieldSelector, LabelSelector
from remuda.standalone.custom import CRD_KIND
from remuda.standalone.errors import StatusError
from remuda.standalone.store import HISTORY_MAX, StoredEvent, encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.objects import Obj
    from remuda.standalone.store import Store

QUEUE_MAX = HISTORY_MAX
"""Events a client may be behind before its watch ends: as many as the store remembers anyway."""
_CHUNK_SIZE = 256 * 1024
"""Bytes that are sent in one go, more or less."""

_INITIAL_CHUNK = 200
"""Objects encoded in one go when a watch starts with what is there; between chunks others get their turn."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind: a namespace (empty: all), labels, fields."""

    kind: ResourceKind
    namespace: str = ""
    labels: LabelSelector = EVERY_LABEL
    fields: FieldSelector = EVERY_FIELD

    def matches(self, obj: Obj) -> bool:
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        if self.labels and not self.labels.matches(meta.get("labels") or {}):
            return False
        return not self.fields or self.fields.matches(obj)

    @property
    def selective(self) -> bool:
        """Whether labels or fields narrow it, beyond the namespace."""
        return bool(self.labels or self.fields)


class Shape(Protocol):
    """How objects are shown to one client: whole, metadata only, or as table rows."""

    def __call__(self, obj: Obj) -> Obj: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What the client asked for. ``since`` is None to start with what is there."""

    since: int | None = None
    bookmarks: bool = False
    end_of_initial: bool = False
    timeout_s: float = 1800.0
    bookmark_every_s: float = 60.0
    queue_max: int = QUEUE_MAX


_Seen = tuple[bytes, StoredEvent, "Obj | None"]
"""What a client is told, the event, and the object if it is not the event's own."""


class Watch:
    """An open watch. Close it when the client is gone."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        options: WatchOptions,
        shape: Shape | None = None,
    ) -> None:
        self._store, self._selection, self._options, self._shape = store, selection, options, shape
        self._queue: deque[_Seen] = deque()
        self._refusal = b""
        self._ended = False
        self._wake: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._shown = store.revision
        self._initial: list[Obj] = []
        self._since = self._start(options.since)
        self._stops = [store.follow(selection.kind, self._offer)]
        if selection.kind.schema is not None:
            self._stops.append(store.follow(CRD_KIND, self._note_crd))

    def _start(self, since: int | None) -> int:
        """Gather what comes before the first live event, and return the version that live events must pass."""
        if since is None:
            found = self._store.objects(self._selection.kind, self._selection.namespace)
            self._initial = [obj for obj in found if self._selection.matches(obj)]
            return self._store.revision
        try:
            missed = self._store.events_since(self._selection.kind, since)
        except StatusError as error:
            # As the real server: the watch opens, and says so as its only event.
            self._refusal = b'{"type":"ERROR","object":' + encode(error.status()) + b"}\n"
            self._ended = True
            return self._store.revision
        self._since = since
        self._queue.extend(seen for event in missed if (seen := self._see(event)))
        return max(since, self._store.revision)

    def close(self) -> None:
        self._finish()
        if self._alarm is not None:
            self._alarm.cancel()

    def _finish(self) -> None:
        self._ended = True
        for stop in self._stops:
            stop()
        self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # --- From the store -----------------------------------------------------------------------------------------------

    def _offer(self, event: StoredEvent) -> None:
        if self._ended or event.revision <= self._since:
            return
        seen = self._see(event)
        if seen is None:
            return
        if len(self._queue) >= self._options.queue_max:
            self._queue.clear()  # it resumes from the last version that it was sent
            self._finish()
            return
        self._queue.append(seen)
        self._rouse()

    def _note_crd(self, event: StoredEvent) -> None:
        """End with the kind: whoever watches it must see that it is not served any more."""
        kind = self._selection.kind
        if event.change == "DELETED" and event.key == f"{kind.plural}.{kind.group}":
            self._finish()

    def _see(self, event: StoredEvent) -> _Seen | None:
        """Say how this client sees a change: an object that leaves its selection is deleted to it."""
        selected = self._selection.matches(event.object)
        if event.change == "DELETED":
            return (b"DELETED", event, None) if selected else None
        was_selected = event.previous is not None and self._selection.matches(event.previous)
        if selected:
            return b"MODIFIED" if was_selected else b"ADDED", event, None
        if not was_selected:
            return None
        assert event.previous is not None
        meta = event.previous["metadata"] | {"resourceVersion": str(event.revision)}
        return b"DELETED", event, event.previous | {"metadata": meta}

    def _taken(self) -> bytes:
        """Take what is next off the queue, as lines; not all of it at once if there is much."""
        lines: list[bytes] = []
        size = 0
        while self._queue and size < _CHUNK_SIZE:
            line = self._line(*self._queue.popleft())
            lines.append(line)
            size += len(line)
        return b"".join(lines)

    def _line(self, change: bytes, event: StoredEvent, obj: Obj | None) -> bytes:
        if obj is not None or self._shape is not None:
            return self._encode(change, obj or event.object)
        return b'{"type":"' + change + b'","object":' + event.body() + b"}\n"

    def _encode(self, change: bytes, obj: Obj) -> bytes:
        shown = obj if self._shape is None else self._shape(obj)
        return b'{"type":"' + change + b'","object":' + encode(shown) + b"}\n"

    def _bookmark(self, *, end_of_initial: bool = False) -> bytes:
        meta: Obj = {"resourceVersion": str(max(self._since, self._store.revision))}
        if end_of_initial:
            meta["resourceVersion"] = str(self._since)
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind = self._selection.kind
        return self._encode(
            b"BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
        )

    # --- To the client ------------------------------------------------------------------------------------------------

    def _opening(self) -> Iterator[bytes]:
        """Yield what comes before the first change: a refusal, or what is there."""
        if self._refusal:
            yield self._refusal
        for at in range(0, len(self._initial), _INITIAL_CHUNK):
            part = self._initial[at : at + _INITIAL_CHUNK]
            yield b"".join(self._encode(b"ADDED", obj) for obj in part)
        self._initial = []
        if self._options.end_of_initial:
            yield self._bookmark(end_of_initial=True)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield lines as they come, until the time is up, the client is too slow, the kind is gone or it is closed."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._options.timeout_s
        for chunk in self._opening():
            yield chunk
        bookmark_at = loop.time() + self._options.bookmark_every_s
        while True:
            if self._queue:
                self._shown = self._store.revision
                yield self._taken()
            elif self._ended or loop.time() >= ends_at:
                return
            elif self._options.bookmarks and loop.time() >= bookmark_at:
                bookmark_at = loop.time() + self._options.bookmark_every_s
                if self._store.revision > self._shown:  # else it would carry no news
                    self._shown = self._store.revision
                    yield self._bookmark()
            else:
                await self._wait(min(ends_at, bookmark_at) if self._options.bookmarks else ends_at)

    async def _wait(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        if self._alarm is None or self._alarm.when() > until:
            # One timer serves many waits: a busy watch would else leave one behind per event.
            self._alarm = loop.call_at(until, self._ring)
        self._wake = loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _ring(self) -> None:
        self._alarm = None
        self._rouse()
