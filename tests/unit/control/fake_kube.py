"""A small API server in memory for the tests of ``remuda.control``: it does as it is told, faults included."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from remuda.control.cache import Key, key_of
from remuda.kube.meta import ObjectMeta, Resource
from remuda.kube.patches import MergePatch
from remuda.ports.kube import (
    WATCH_S,
    AlreadyExists,
    Bookmark,
    Cascade,
    Change,
    Conflict,
    Expired,
    Invalid,
    Kube,
    KubeError,
    Listing,
    Manifest,
    NotFound,
    Query,
    WatchEvent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.kube.kinds import Kind
    from remuda.kube.patches import Patch
    from remuda.ports.kube import BoundPod, Seen, Token, TokenSubject

T = TypeVar("T", bound=Resource)


def broken(sort: type[KubeError], what: str = "It") -> KubeError:
    return sort(f"{what} failed", why="the test wants it so", fix="Nothing")


class FakeKube(Kube):
    """Objects of any one kind. ``calls`` lists what was asked; ``faults`` are raised by the next calls, in order."""

    def __init__(self) -> None:
        self.objects: dict[Key, Any] = {}
        self.version = 0
        self.calls: list[str] = []
        self.faults: dict[str, list[KubeError | None]] = {}
        self.streams = True
        self.trickles = False
        """Whether a streaming list goes on and on and never comes to its end."""
        self.lose_events = False
        self.watched_since: list[str] = []
        self.watched_for_s: list[float] = []
        self.delay_s = 0.0
        self._log: list[tuple[int, WatchEvent[Any]]] = []
        self._oldest = 0
        self._news = asyncio.Condition()
        self._cuts = 0

    # --- What the test does ---------------------------------------------------------------------

    async def put(self, resource: Resource) -> None:
        self.put_now(resource)
        async with self._news:
            self._news.notify_all()

    def put_now(self, resource: Resource) -> None:
        """Store, and tell only those watches that look by themselves."""
        self.version += 1
        metadata = msgspec.structs.replace(
            resource.metadata,
            resource_version=str(self.version),
            uid=resource.metadata.uid or f"uid-{resource.name}",
        )
        stored = msgspec.structs.replace(resource, metadata=metadata)
        change = Change.MODIFIED if key_of(stored) in self.objects else Change.ADDED
        self.objects[key_of(stored)] = stored
        self._log_event(change, stored)

    async def remove(self, key: Key) -> None:
        self.version += 1
        gone = self.objects.pop(key)
        metadata = msgspec.structs.replace(gone.metadata, resource_version=str(self.version))
        self._log_event(Change.DELETED, msgspec.structs.replace(gone, metadata=metadata))
        async with self._news:
            self._news.notify_all()

    async def cut(self) -> None:
        """End every open watch."""
        self._cuts += 1
        async with self._news:
            self._news.notify_all()

    def forget(self) -> None:
        """Make every version up to now too old to watch from."""
        self._oldest = self.version + 1
        self._log.clear()

    def _log_event(self, change: Change, resource: Resource) -> None:
        if not self.lose_events:
            self._log.append((self.version, WatchEvent(change, resource)))

    # --- What is asked --------------------------------------------------------------------------

    async def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if (waiting := self.faults.get(verb)) and (fault := waiting.pop(0)) is not None:
            raise fault

    def within(self, seconds: float) -> FakeKube:
        del seconds
        return self

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T:
        await self._called("get")
        found: T | None = self.objects.get(Key(namespace, name))
        if found is None:
            raise broken(NotFound, kind.name)
        return found

    async def list(self, kind: Kind[T], query: Query = Query()) -> Listing[T]:  # noqa: B008 - frozen
        del kind, query
        await self._called("list")
        return Listing(tuple(self.objects.values()), str(self.version))

    @asynccontextmanager
    async def watch(
        self,
        kind: Kind[T],
        query: Query,
        *,
        since: str = "",
        streaming_list: bool = False,
        lasts_s: float = WATCH_S,
    ) -> AsyncIterator[AsyncIterator[tuple[WatchEvent[T] | Bookmark, ...]]]:
        del kind, query
        verb = "stream" if streaming_list else "watch"
        self.watched_since.append(since)
        self.watched_for_s.append(lasts_s)
        await self._called(verb)
        if streaming_list and not self.streams:
            raise broken(Invalid, verb)
        if since and int(since) < self._oldest - 1:
            raise broken(Expired, verb)
        yield self._events(int(since or self.version), streaming_list=streaming_list)

    async def _events(
        self, since: int, *, streaming_list: bool
    ) -> AsyncIterator[tuple[WatchEvent[Any] | Bookmark, ...]]:
        cuts = self._cuts
        if streaming_list:
            for item in tuple(self.objects.values()):
                yield (WatchEvent(Change.ADDED, item),)
            while self.trickles:
                await asyncio.sleep(60)
                yield (Bookmark(str(since)),)
            await asyncio.sleep(self.delay_s)
            if (waiting := self.faults.get("mid-stream")) and (fault := waiting.pop(0)):
                raise fault
            # A busy server sends the end of the list and the first news together.
            news = tuple(event for version, event in self._log if version > since)
            yield (Bookmark(str(since), initial_events_end=True), *news)
            since = int(news[-1].object.resource_version) if news else since
        while cuts == self._cuts:
            if news := tuple(event for version, event in self._log if version > since):
                since = int(news[-1].object.resource_version)
                yield news
            async with self._news:
                await self._news.wait()

    async def create(self, kind: Kind[T], resource: T | Manifest) -> T:
        await self._called("create")
        assert not isinstance(resource, Manifest)
        if key_of(resource) in self.objects:
            raise broken(AlreadyExists, kind.name)
        await self.put(resource)
        made: T = self.objects[key_of(resource)]
        return made

    async def patch(
        self, kind: Kind[T], name: str, patch: Patch, *, namespace: str = "", subresource: str = ""
    ) -> T:
        del subresource
        await self._called("patch")
        assert isinstance(patch, MergePatch)
        old = self.objects.get(Key(namespace, name))
        if old is None:
            raise broken(NotFound, kind.name)
        wanted = patch.changes.get("metadata", {})
        assert isinstance(wanted, dict)
        if wanted.get("resourceVersion", old.resource_version) != old.resource_version:
            raise broken(Conflict, kind.name)
        await self.put(msgspec.convert(_merged(msgspec.to_builtins(old), patch.changes), kind.type))
        if (waiting := self.faults.get("patch-answer")) and (fault := waiting.pop(0)) is not None:
            raise fault  # applied, but the caller does not learn it
        made: T = self.objects[Key(namespace, name)]
        return made

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        *,
        namespace: str = "",
        seen: Seen | None = None,
        cascade: Cascade = Cascade.BACKGROUND,
        grace_s: int | None = None,
    ) -> None:
        del kind, seen, cascade, grace_s
        await self._called("delete")
        await self.remove(Key(namespace, name))

    async def request_token(
        self,
        service_account: str,
        *,
        namespace: str,
        audience: str,
        expiration_s: int,
        pod: BoundPod | None = None,
    ) -> Token:
        raise NotImplementedError

    async def review_token(self, token: str, *, audience: str) -> TokenSubject | None:
        raise NotImplementedError

    async def may_i(
        self, verb: str, kind: Kind[T], *, namespace: str = "", subresource: str = ""
    ) -> bool:
        raise NotImplementedError


def _merged(old: Any, changes: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(changes, dict) or not isinstance(old, dict):
        return changes
    merged = dict(old)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key, {}), value)
    return merged


def named(name: str, namespace: str = "ci", **labels: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace, labels=labels)
