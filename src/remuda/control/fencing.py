"""
A Kube that writes only while we lead.

A process can be stopped for a minute and go on where it was, its timers late: then the work of a leader that is none
any more takes its next step before anyone cancels it. This asks the clock right before each write. What was on its
way already is held off by the preconditions that every write of ours carries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from remuda.kube.meta import Resource
from remuda.ports.kube import Cascade, Kube, KubeError, Query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
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


class FencedKube(Kube):
    """Passes reads on always, and writes while ``leads()`` is true."""

    def __init__(self, inner: Kube, leads: Callable[[], bool]) -> None:
        self._inner = inner
        self._leads = leads

    def _check(self, what: str) -> None:
        if not self._leads():
            raise NotLeading(
                f"{what} was not sent",
                why="another replica may be the leader by now",
                fix="Nothing to do: the leader looks at it",
            )

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T:
        return await self._inner.get(kind, name, namespace=namespace)

    async def list(self, kind: Kind[T], query: Query = _EVERYTHING) -> Listing[T]:
        return await self._inner.list(kind, query)

    def watch(
        self, kind: Kind[T], query: Query, *, since: str = "", streaming_list: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[WatchEvent[T] | Bookmark, ...]]]:
        return self._inner.watch(kind, query, since=since, streaming_list=streaming_list)

    async def create(self, kind: Kind[T], resource: T | Manifest) -> T:
        self._check(f"The creation of a {kind.name}")
        return await self._inner.create(kind, resource)

    async def patch(
        self, kind: Kind[T], name: str, patch: Patch, *, namespace: str = "", subresource: str = ""
    ) -> T:
        self._check(f"The change of {kind.name} {name}")
        return await self._inner.patch(
            kind, name, patch, namespace=namespace, subresource=subresource
        )

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
        self._check(f"The deletion of {kind.name} {name}")
        await self._inner.delete(
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
        self._check(f"The request for a token of {service_account}")
        return await self._inner.request_token(
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
