"""A cluster that answers in no time, for measurements of what stands before it: Pods, tokens, patches, news."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec

from remuda.kube.core import POD, Pod
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import AUDIENCE, POOL, RUNNER, TEMPLATE
from remuda.kube.patches import MergePatch
from remuda.ports.kube import Bookmark, Change, Listing, NotFound, TokenSubject, WatchEvent
from remuda.sim.fleet.furnish import a_pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.ports.kube import Kube

SPACE = "runners"
_POOL = a_pool("linux", SPACE, labels=("self-hosted", "fast"), os="linux")


def token_of(pod: str) -> str:
    """Return what a Pod shows. The cluster can tell from it who it is."""
    return f"header.{pod}.signature"


class InstantKube:
    """As much of ``remuda.ports.kube.Kube`` as a poll needs."""

    def __init__(self, pods: int) -> None:
        self._version = 1
        self._pods = {f"pod-{number}": _a_pod(f"pod-{number}") for number in range(pods)}
        self._news: list[asyncio.Queue[WatchEvent[Pod]]] = []
        self.reviews = 0

    def within(self, seconds: float) -> Kube:
        del seconds
        return cast("Kube", self)

    async def get(self, kind: object, name: str, *, namespace: str = "") -> Pod:
        del kind, namespace
        if name not in self._pods:
            raise NotFound(f"Pod {name} was not read", why="there is none", fix="Check the name")
        return self._pods[name]

    async def list(self, kind: object, query: object = None) -> Listing[Any]:
        del query
        items: tuple[Any, ...] = tuple(self._pods.values()) if kind is POD else (_POOL,)
        return Listing(items, str(self._version))

    @asynccontextmanager
    async def watch(
        self, kind: object, query: object, **how: object
    ) -> AsyncIterator[AsyncIterator[tuple[WatchEvent[Pod] | Bookmark, ...]]]:
        del query, how
        news: asyncio.Queue[WatchEvent[Pod]] = asyncio.Queue()
        if kind is POD:
            self._news.append(news)
        yield _read(news)

    async def patch(self, kind: object, name: str, patch: object, **how: object) -> Pod:
        del kind, how
        assert isinstance(patch, MergePatch), "only stamps are measured"
        meta = cast("dict[str, dict[str, str]]", patch.changes["metadata"])
        pod = self._pods[name]
        self._version += 1
        changed = msgspec.structs.replace(
            pod.metadata,
            labels={**pod.metadata.labels, **meta["labels"]},
            annotations={**pod.metadata.annotations, **meta["annotations"]},
            resource_version=str(self._version),
        )
        self._pods[name] = stamped = msgspec.structs.replace(pod, metadata=changed)
        for news in self._news:
            news.put_nowait(WatchEvent(Change.MODIFIED, stamped))
        return stamped

    async def review_token(self, token: str, *, audience: str) -> TokenSubject | None:
        assert audience == AUDIENCE
        self.reviews += 1
        pod = token.split(".")[1]
        return TokenSubject(
            username=f"system:serviceaccount:{SPACE}:{pod}",
            uid="1",
            groups=(),
            audiences=(AUDIENCE,),
            pod_name=pod,
            pod_uid=f"uid-{pod}",
        )


async def _read(
    news: asyncio.Queue[WatchEvent[Pod]],
) -> AsyncIterator[tuple[WatchEvent[Pod] | Bookmark, ...]]:
    while True:
        yield (await news.get(),)


def _a_pod(name: str) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=SPACE,
            uid=f"uid-{name}",
            resource_version="1",
            labels={RUNNER: "true", POOL: "linux", TEMPLATE: "h1"},
        )
    )
