"""
A kind's objects, kept current in memory.

Lists once, then watches; a watch only makes news come sooner. What a watch loses is found by the next full list, and
handlers are told of every key again from time to time: a lost event costs time, never correctness. Handlers get keys
and look for themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from remuda.control.backoff import Backoff, spread
from remuda.control.cache import Cache, IndexFunction, Key, key_of
from remuda.kube.meta import Resource
from remuda.ports.kube import (
    WATCH_S,
    Bookmark,
    Change,
    Expired,
    Invalid,
    KubeError,
    Query,
    Throttled,
    Unavailable,
    WatchEvent,
)

if TYPE_CHECKING:
    from remuda.kube.kinds import Kind
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Resource)

_STREAM_TRIES = 2
_SHORT_WATCH_S = 1.0
_FAILURES_TO_WARN = 3


class Stream(StrEnum):
    """
    When a list comes through the watch, object by object, instead of in pages.

    Streaming spares the server's memory and its etcd. A real API server takes about 1.6 times as long for it, though
    (``tests/bench/reflector.py``), so the first list, which everybody waits for, comes in pages unless told otherwise.
    """

    ALWAYS = "always"
    RELISTS = "relists"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorSettings:
    resync_s: float = 120.0
    """How often handlers are told of every key again."""

    relist_s: float = 600.0
    """How often everything is listed again and compared: the longest that a lost event can stay unseen."""

    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.5, longest_s=30.0))
    """How long to wait after the server failed."""

    stream: Stream = Stream.RELISTS
    """When to ask for a list through the watch. Servers that cannot are asked for pages instead."""


_DEFAULTS = ReflectorSettings()
_EVERYTHING = Query()

Batches = AsyncIterator[tuple[WatchEvent[T] | Bookmark, ...]]


class Reflector(Generic[T]):
    """Reads are from memory, at once, and may be ``age_s`` old. ``run`` keeps them current."""

    def __init__(
        self,
        kube: Kube,
        kind: Kind[T],
        query: Query = _EVERYTHING,
        *,
        clock: Clock,
        ids: Ids,
        settings: ReflectorSettings = _DEFAULTS,
    ) -> None:
        self._kube, self._clock, self._ids = kube, clock, ids
        self._kind = kind
        self._query = query
        self._settings = settings
        self._cache: Cache[T] = Cache()
        self._handlers: list[Callable[[Key], None]] = []
        self._synced = asyncio.Event()
        self._can_stream = settings.stream is not Stream.NEVER
        self._streams_failed = 0
        self._failures = 0
        self._version = ""  # where to watch from; empty means that a list comes first
        self._heard_at: float | None = None
        self._relist_at = float("inf")

    # --- Reading ---------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """Whether there has been a complete list. Before that, a missing object means nothing."""
        return self._synced.is_set()

    @property
    def age_s(self) -> float:
        """How long ago the server last said anything: an event, a list, or the bookmark of a quiet minute."""
        return float("inf") if self._heard_at is None else self._clock.monotonic() - self._heard_at

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def get(self, name: str, *, namespace: str = "") -> T | None:
        return self._cache.get(Key(namespace, name))

    def all(self) -> tuple[T, ...]:
        """Return every object, in key order."""
        return self._cache.all()

    def found(self, index: str, value: str) -> tuple[T, ...]:
        """Return the objects that an index has under a value, in key order."""
        return self._cache.found(index, value)

    def __len__(self) -> int:
        return len(self._cache)

    # --- Wiring ----------------------------------------------------------------------------------

    def index(self, name: str, function: IndexFunction[T]) -> None:
        """Make objects findable by what ``function`` says of them (see ``remuda.control.cache``)."""
        self._cache.index(name, function)

    def on_change(self, handler: Callable[[Key], None]) -> None:
        """Have ``handler`` told of every key that may have news, and now and then of all. It must not wait."""
        self._handlers.append(handler)
        for key in self._cache.sorted_keys():
            handler(key)

    # --- Following -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the server until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._resync(), name=f"resync {self._kind}")
            await self._follow()

    async def _resync(self) -> None:
        await self._synced.wait()
        while True:
            await self._clock.sleep(spread(self._settings.resync_s, self._ids.fraction()))
            self._tell(self._cache.sorted_keys())

    async def _follow(self) -> None:
        while True:
            started = self._clock.monotonic()
            try:
                await self._follow_until_relist()
            except KubeError as error:
                self._note(error, self._clock.monotonic() - started)
                await self._clock.sleep(self._wait_s(error))
            else:
                # A server that ends every watch at once is as bad as one that fails.
                if self._clock.monotonic() - started < _SHORT_WATCH_S:
                    self._failures += 1
                    await self._clock.sleep(self._wait_s(None))

    async def _follow_until_relist(self) -> None:
        """List if need be, and watch until the server ends it or it is time to list again."""
        if self._version or self._streams():
            await self._watch(streaming_list=not self._version)
            return
        listing = await self._kube.list(self._kind, self._query)
        if self._streams_failed >= _STREAM_TRIES:
            self._can_stream = False  # it gives pages and no streams: remember that
        self._replace({key_of(item): item for item in listing.items}, listing.resource_version)
        await self._watch(streaming_list=False)

    def _streams(self) -> bool:
        wanted = self.synced or self._settings.stream is Stream.ALWAYS
        return wanted and self._can_stream and self._streams_failed < _STREAM_TRIES

    async def _watch(self, *, streaming_list: bool) -> None:
        lasts_s = spread(WATCH_S, self._ids.fraction())
        watch = self._kube.watch(
            self._kind,
            self._query,
            since=self._version,
            streaming_list=streaming_list,
            lasts_s=lasts_s,
        )
        try:
            async with asyncio.timeout(self._settings.relist_s) as until_relist, watch as batches:
                if streaming_list:
                    await self._receive_list(batches)
                until_relist.reschedule(self._relist_at)
                async for batch in batches:
                    self._apply(batch)
        except TimeoutError:
            if not self._version:
                raise self._incomplete("the server did not come to its end") from None
            self._version = ""

    async def _receive_list(self, batches: Batches[T]) -> None:
        """Collect the objects that a streaming list begins with; nothing is replaced before it is complete."""
        objects: dict[Key, T] = {}
        async for batch in batches:
            self._heard_at = self._clock.monotonic()
            for position, event in enumerate(batch):
                if isinstance(event, Bookmark):
                    if event.initial_events_end:
                        self._replace(objects, event.resource_version)
                        self._apply(batch[position + 1 :])
                        return
                elif event.change is Change.DELETED:
                    objects.pop(key_of(event.object), None)
                else:
                    objects[key_of(event.object)] = event.object
        raise self._incomplete("the server ended the list before it was complete")

    def _incomplete(self, why: str) -> Unavailable:
        return Unavailable(
            f"The {self._kind} were not listed", why=why, fix="Try again, or in pages"
        )

    def _apply(self, batch: tuple[WatchEvent[T] | Bookmark, ...]) -> None:
        if not batch:
            return
        self._heard_at = self._clock.monotonic()
        self._failures = 0
        changed: dict[Key, None] = {}
        for event in batch:
            if isinstance(event, Bookmark):
                self._version = event.resource_version
                continue
            key = key_of(event.object)
            deleted = event.change is Change.DELETED
            if self._cache.drop(key) if deleted else self._cache.put(event.object):
                changed[key] = None
            self._version = event.object.resource_version
        self._tell(changed)

    def _replace(self, objects: Mapping[Key, T], version: str) -> None:
        self._heard_at = self._clock.monotonic()
        self._relist_at = self._heard_at + spread(self._settings.relist_s, self._ids.fraction())
        self._version = version
        # Not the failures: where every watch fails, lists that succeed must not become a storm.
        self._streams_failed = 0
        changed = self._cache.replace(objects)
        self._synced.set()
        self._tell(changed)

    def _tell(self, keys: Iterable[Key]) -> None:
        for key in keys:
            for handler in self._handlers:
                handler(key)

    # --- Failing ---------------------------------------------------------------------------------

    def _note(self, error: KubeError, lasted_s: float) -> None:
        """Draw the conclusions of a failure: where to go on, and whether to ask differently."""
        if lasted_s > self._settings.backoff.longest_s:
            self._failures = 0  # it went well for longer than we would ever wait
        self._failures += 1
        say = log.info if self._failures < _FAILURES_TO_WARN else log.warning
        say("watch failed", kind=str(self._kind), error=str(error), failures=self._failures)
        if self._version:
            self._version = "" if isinstance(error, Expired) else self._version
        elif not self._streams():
            self._streams_failed = 0  # pages failed as well: that says nothing about streams
        elif isinstance(error, Invalid):
            self._can_stream = False
        else:
            self._streams_failed += 1  # some servers begin a stream and fail in the middle of it

    def _wait_s(self, error: KubeError | None) -> float:
        wait_s = self._settings.backoff.wait_s(max(1, self._failures), self._ids.fraction())
        return max(wait_s, error.retry_after_s) if isinstance(error, Throttled) else wait_s
