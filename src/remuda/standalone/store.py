"""
The object store: every object at its latest version, and a bounded history of changes per kind.

One revision counts all writes of all kinds; it is what ``resourceVersion`` shows. A write is decided and accepted
without waiting (``put``, ``remove``), so two writers cannot interleave; it becomes visible to readers, watchers and
its own writer only when it is durable (``settled``). It knows nothing of verbs, rules or HTTP.

Stored objects are never changed. Whoever wants to change one makes a new one, sharing what did not change.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from remuda.standalone.errors import StatusError, expired

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.standalone.journal import Journal
    from remuda.standalone.objects import Obj

Change = Literal["ADDED", "MODIFIED", "DELETED"]
KindKey = tuple[str, str]
"""Group and plural: how the store tells kinds apart. Versions of one kind share their objects."""

FIRST_REVISION = 1
"""An empty store shows 1, because "0" means "any version" to clients."""

HISTORY_MAX = 5_000

encode = msgspec.json.Encoder().encode


class Keyed(Protocol):
    """What names a kind to the store: a ``ResourceKind`` does."""

    @property
    def group(self) -> str: ...
    @property
    def plural(self) -> str: ...


def kind_key(kind: Keyed) -> KindKey:
    return kind.group, kind.plural


def object_key(namespace: str, name: str) -> str:
    """Return the key that lists are ordered by, as etcd would order them."""
    return f"{namespace}/{name}" if namespace else name


class StoredEvent(msgspec.Struct, eq=False, repr_omit_defaults=True):
    """One change. ``object`` of a DELETED is the last state, at the revision of the deletion."""

    revision: int
    change: Change
    kind: KindKey
    object: Obj
    previous: Obj | None
    _body: bytes | None = None

    @property
    def key(self) -> str:
        meta = self.object["metadata"]
        return object_key(meta.get("namespace", ""), meta["name"])

    def body(self) -> bytes:
        """Return the object as JSON; encoded once, however many watchers it goes to."""
        if self._body is None:
            self._body = encode(self.object)
        return self._body


@dataclass(slots=True)
class _Table:
    """The objects of one kind, and what happened to them lately."""

    history: deque[StoredEvent]
    objects: dict[str, Obj] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    floor: int = 0
    """The newest revision that fell out of ``history``: a watch from before it would miss something."""
    listeners: tuple[Callable[[StoredEvent], None], ...] = ()

    def apply(self, event: StoredEvent) -> None:
        key = event.key
        if event.change == "DELETED":
            del self.objects[key]
            del self.keys[bisect_left(self.keys, key)]
        else:
            if key not in self.objects:
                insort(self.keys, key)
            self.objects[key] = event.object
        self.remember(event)

    def remember(self, event: StoredEvent) -> None:
        history = self.history
        if len(history) == history.maxlen:
            self.floor = history[0].revision
        history.append(event)


class Store:
    """See the module's text. ``journal=None`` keeps everything in memory: writes then never yield to the loop."""

    def __init__(self, journal: Journal | None = None, *, history_max: int = HISTORY_MAX) -> None:
        self._journal = journal
        self.in_memory = journal is None
        """Whether nothing is written down: a write then never waits."""
        self._tables: defaultdict[KindKey, _Table] = defaultdict(
            lambda: _Table(deque(maxlen=history_max))
        )
        self._listeners: tuple[Callable[[StoredEvent], None], ...] = ()
        self._revision = FIRST_REVISION
        self._accepted: dict[tuple[KindKey, str], Obj | None] = {}
        """Writes that are decided but not yet durable; only other writers may see them."""
        self._queued: list[StoredEvent] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._in_flight: asyncio.Future[None] | None = None
        self._begin_scheduled = False
        self._thread = ThreadPoolExecutor(1, "journal") if journal else None
        if journal:
            self._load(journal)
        self._last_accepted = self._revision

    def _load(self, journal: Journal) -> None:
        loaded = journal.load()
        self._revision = max(FIRST_REVISION, loaded.revision)
        for kind, obj in loaded.objects:
            meta = obj["metadata"]
            self._tables[kind].objects[object_key(meta.get("namespace", ""), meta["name"])] = obj
        for table in self._tables.values():
            table.keys = sorted(table.objects)
        for kind, floor in loaded.floors:
            self._tables[kind].floor = floor
        for event in loaded.events:
            self._tables[event.kind].remember(event)

    # --- Reading: durable state only --------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The newest revision that readers may know of."""
        return self._revision

    def get(self, kind: Keyed, namespace: str, name: str) -> Obj | None:
        return self._tables[kind.group, kind.plural].objects.get(object_key(namespace, name))

    def objects(self, kind: Keyed, namespace: str = "") -> list[Obj]:
        table = self._tables[kind_key(kind)]
        return [table.objects[key] for key in _in_namespace(table.keys, namespace)]

    def count(self, kind: Keyed, namespace: str = "") -> int:
        return len(_in_namespace(self._tables[kind_key(kind)].keys, namespace))

    def objects_at(self, kind: Keyed, namespace: str, revision: int) -> list[Obj]:
        """Return the objects as they were at ``revision``; 410 if that is no longer known."""
        later = self.events_since(kind, revision)
        if not later:
            return self.objects(kind, namespace)
        past = dict(self._tables[kind_key(kind)].objects)
        for event in reversed(later):
            if event.previous is None:
                del past[event.key]
            else:
                past[event.key] = event.previous
        return [past[key] for key in _in_namespace(sorted(past), namespace)]

    def events_since(self, kind: Keyed, revision: int) -> list[StoredEvent]:
        """Return what happened to a kind after ``revision``, oldest first; 410 if that is no longer known."""
        table = self._tables[kind_key(kind)]
        if revision < table.floor:
            raise expired(f"too old resource version: {revision} ({table.floor})")
        newest_first = takewhile(lambda e: e.revision > revision, reversed(table.history))
        return list(newest_first)[::-1]

    # --- Listening: after commit, in revision order -----------------------------------------------------------------

    def subscribe(self, listener: Callable[[StoredEvent], None]) -> Callable[[], None]:
        """Call ``listener`` for every change of every kind. Returns how to stop."""
        self._listeners = (*self._listeners, listener)

        def stop() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return stop

    def follow(self, kind: Keyed, listener: Callable[[StoredEvent], None]) -> Callable[[], None]:
        """Call ``listener`` for every change of one kind. Returns how to stop."""
        table = self._tables[kind_key(kind)]
        table.listeners = (*table.listeners, listener)

        def stop() -> None:
            table.listeners = tuple(one for one in table.listeners if one is not listener)

        return stop

    # --- Writing ----------------------------------------------------------------------------------------------------

    def latest(self, kind: Keyed, namespace: str, name: str) -> Obj | None:
        """Return what a writer must build on: the newest accepted state, durable or not."""
        where = object_key(namespace, name)
        if self._accepted:
            accepted = self._accepted.get((kind_key(kind), where), self)
            if accepted is not self:
                return accepted  # type: ignore[return-value]  # the default alone is a Store
        return self._tables[kind.group, kind.plural].objects.get(where)

    def latest_objects(self, kind: Keyed, namespace: str = "") -> list[Obj]:
        """Return all objects of a kind that a writer must reckon with, durable or not."""
        if not self._accepted:
            return self.objects(kind, namespace)
        key = kind_key(kind)
        found: dict[str, Obj | None] = dict(self._tables[key].objects)
        found |= {where: obj for (one, where), obj in self._accepted.items() if one == key}
        there = {where: obj for where, obj in found.items() if obj is not None}
        return [there[where] for where in _in_namespace(sorted(there), namespace)]

    def put(self, kind: Keyed, obj: Obj, *, over: Obj | None = None) -> Obj:
        """
        Accept a new or changed object (its ``metadata`` must be the caller's own) and return it.

        ``over`` is the latest state that it replaces, if the caller has just read it.
        """
        meta = obj["metadata"]
        previous = over or self.latest(kind, meta.get("namespace", ""), meta["name"])
        self._last_accepted = revision = self._last_accepted + 1
        meta["resourceVersion"] = str(revision)
        change: Change = "ADDED" if previous is None else "MODIFIED"
        key = kind.group, kind.plural
        self._accept(StoredEvent(revision, change, key, obj, previous))
        return obj

    def remove(self, kind: Keyed, namespace: str, name: str) -> Obj:
        """Accept a deletion and return the last state, at the revision of the deletion."""
        previous = self.latest(kind, namespace, name)
        assert previous is not None, f"{kind} {namespace}/{name} is not there"
        self._last_accepted += 1
        meta = previous["metadata"] | {"resourceVersion": str(self._last_accepted)}
        last = previous | {"metadata": meta}
        self._accept(StoredEvent(self._last_accepted, "DELETED", kind_key(kind), last, previous))
        return last

    async def settled(self) -> None:
        """Wait until everything accepted so far is durable. StatusError 500 if it could not be written."""
        if not self._accepted:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _accept(self, event: StoredEvent) -> None:
        if self._journal is None:
            self._commit(event)
            return
        deleted = event.change == "DELETED"
        self._accepted[event.kind, event.key] = None if deleted else event.object
        self._queued.append(event)
        if self._in_flight is None and not self._begin_scheduled:
            # Not at once: writers that are ready in this turn of the loop share the first batch.
            self._begin_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _commit(self, event: StoredEvent) -> None:
        table = self._tables[event.kind]
        table.apply(event)
        self._revision = event.revision
        if self._journal is None:
            for listener in table.listeners:
                listener(event)
            for listener in self._listeners:
                listener(event)
        else:
            for listener in table.listeners:
                self._tell(listener, event)
            for listener in self._listeners:
                self._tell(listener, event)

    def _tell(self, listener: Callable[[StoredEvent], None], event: StoredEvent) -> None:
        """Call a listener whose fault must not keep the rest of a durable batch from being seen."""
        try:
            listener(event)
        except Exception as fault:  # noqa: BLE001 - the edge of the store
            context = {"message": "a listener of the store failed", "exception": fault}
            asyncio.get_running_loop().call_exception_handler(context)

    # --- Group commit: while one batch is being synced, the next gathers --------------------------------------------

    def _begin(self) -> None:
        assert self._journal is not None
        self._begin_scheduled = False
        batch, self._queued = self._queued, []
        waiters, self._waiters = self._waiters, []
        loop = asyncio.get_running_loop()
        self._in_flight = loop.run_in_executor(self._thread, self._journal.append, batch)
        self._in_flight.add_done_callback(lambda done: self._finish(done, batch, waiters))

    def _finish(
        self,
        done: asyncio.Future[None],
        batch: list[StoredEvent],
        waiters: list[asyncio.Future[None]],
    ) -> None:
        self._in_flight = None
        if done.cancelled() or (fault := done.exception()) is not None:
            self._undo(waiters, "the write was cut off" if done.cancelled() else str(fault))
            return
        for event in batch:
            where = event.kind, event.key
            newest = None if event.change == "DELETED" else event.object
            if where in self._accepted and self._accepted[where] is newest:
                del self._accepted[where]
            self._commit(event)
        if self._queued:
            self._begin()
        else:  # who began to wait meanwhile waits for this batch: there is no other
            waiters, self._waiters = [*waiters, *self._waiters], []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _undo(self, waiters: list[asyncio.Future[None]], fault: str) -> None:
        """Forget a batch that could not be written, and those that were decided on top of it."""
        refused = [*waiters, *self._waiters]
        self._queued, self._waiters = [], []
        self._accepted.clear()
        for waiter in refused:
            if not waiter.done():
                waiter.set_exception(
                    StatusError(500, "InternalError", f"Internal error occurred: {fault}")
                )

    async def close(self) -> None:
        """Finish what is under way and let go of the journal."""
        try:
            await self.settled()
        finally:
            if self._thread and self._journal:
                self._thread.shutdown()
                self._journal.close()


def _in_namespace(keys: list[str], namespace: str) -> list[str]:
    if not namespace:
        return keys
    # "0" is the character after "/": together they bound the keys of one namespace.
    return keys[bisect_left(keys, f"{namespace}/") : bisect_left(keys, f"{namespace}0")]
