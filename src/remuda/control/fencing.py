"""
A Kube that writes only while we lead.

A process can be stopped for a minute and go on where it was, its timers late: then the work of a leader that is none
any more takes its next step before anyone cancels it. This asks the clock right before each write, and gives the write
no longer than our reign lasts, on the server too. A write without an answer may be carried out until then, so the
Lease is not given back before. What a network holds back for longer than the rest of the Lease is held off by the
preconditions that every write of ours carries.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from remuda.kube.meta import Resource
from remuda.ports.kube import WATCH_S, Cascade, Kube, KubeError, Query, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from remuda.kube.kinds import Kind
    from remuda.kube.patches import Patch
    from remuda.ports.kube import (
        Bookmark,
        BoundPod,
        Listing,
        Manifest,
        Seen,
        Token,
        TokenSubject,
        WatchEvent,
    )

T = TypeVar("T", bound=Resource)

_EVERYTHING = Query()


class NotLeading(KubeError):
    """We do not lead (any more). Nothing was sent."""


class Reign(Protocol):
    """How long we may act, and what may still come of what we did. A ``LeaderElector`` is one."""

    @property
    def leads_until(self) -> float:
        """When we must have stopped, if we cannot renew; on our monotonic clock."""
        ...

    @property
    def left_s(self) -> float:
        """Seconds from now until then; 0 or less if we do not lead."""
        ...

    def doubt(self, until: float) -> Callable[[], None]:
        """Take note of a write that may be carried out until then; what is returned says that it is settled."""
        ...


class FencedKube(Kube):
    """Passes reads on always, and writes while we lead; none of them outlasts the reign in which it began."""

    def __init__(self, inner: Kube, reign: Reign) -> None:
        self._inner = inner
        self._reign = reign

    @contextmanager
    def _writing(self, what: str) -> Iterator[Kube]:
        until, left_s = self._reign.leads_until, self._reign.left_s
        if left_s <= 0:
            raise NotLeading(
                f"{what} was not sent",
                why="another replica may be the leader by now",
                fix="Nothing to do: the leader looks at it",
            )
        settle = self._reign.doubt(until)
        try:
            yield self._inner.within(left_s)
        except (Unavailable, asyncio.CancelledError):
            raise  # who knows what became of it
        except BaseException:
            settle()
            raise
        else:
            settle()

    def within(self, seconds: float) -> Kube:
        return FencedKube(self._inner.within(seconds), self._reign)

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T:
        return await self._inner.get(kind, name, namespace=namespace)

    async def list(self, kind: Kind[T], query: Query = _EVERYTHING) -> Listing[T]:
        return await self._inner.list(kind, query)

    def watch(
        self,
        kind: Kind[T],
        query: Query,
        *,
        since: str = "",
        streaming_list: bool = False,
        lasts_s: float = WATCH_S,
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[WatchEvent[T] | Bookmark, ...]]]:
        return self._inner.watch(
            kind, query, since=since, streaming_list=streaming_list, lasts_s=lasts_s
        )

    async def create(self, kind: Kind[T], resource: T | Manifest) -> T:
        with self._writing(f"The creation of a {kind.name}") as kube:
            return await kube.create(kind, resource)

    async def patch(
        self, kind: Kind[T], name: str, patch: Patch, *, namespace: str = "", subresource: str = ""
    ) -> T:
        with self._writing(f"The change of {kind.name} {name}") as kube:
            return await kube.patch(kind, name, patch, namespace=namespace, subresource=subresource)

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
        with self._writing(f"The deletion of {kind.name} {name}") as kube:
            await kube.delete(
                kind, name, namespace=namespace, seen=seen, cascade=cascade, grace_s=grace_s
            )

    async def request_token(
        self,
        service_account: str,
        *,
        namespace: str,
        audience: str,
        expiration_s: int,
        pod: BoundPod | None = None,
    ) -> Token:
        with self._writing(f"The request for a token of {service_account}") as kube:
            return await kube.request_token(
                service_account,
                namespace=namespace,
                audience=audience,
                expiration_s=expiration_s,
                pod=pod,
            )

    async def review_token(self, token: str, *, audience: str) -> TokenSubject | None:
        return await self._inner.review_token(token, audience=audience)

    async def may_i(
        self, verb: str, kind: Kind[T], *, namespace: str = "", subresource: str = ""
    ) -> bool:
        return await self._inner.may_i(verb, kind, namespace=namespace, subresource=subresource)
