"""
The mistakes of the field, each behind a name: what a replica is made with when a guard is switched off.

Also how the API server fares: stamps that do not stick, and lists of Pods that are not what is there.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from remuda.kube.core import POD
from remuda.kube.names import OWNER, RUNNER
from remuda.kube.patches import JsonPatch, MergePatch
from remuda.model.job import Size
from remuda.ports.jobs import ANYTHING, Attribution, NoJob, NothingToDo, PodEnd
from remuda.ports.kube import Invalid, KubeError, Query, Unavailable
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.turns import may_go

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from remuda.dispatch.workers import RecoveryParts
    from remuda.kube.kinds import Kind
    from remuda.kube.meta import Resource
    from remuda.kube.patches import Patch
    from remuda.model.job import Os
    from remuda.ports.jobs import Claimed, Execution, WarmRunner, Without
    from remuda.ports.kube import Kube, Listing

T = TypeVar("T", bound="Resource")

_EVERYTHING = Query()

REAP_EVERY_S = 30.0
_ENDLESS = Size(1_000_000, 1_000_000_000)


class Unbelieving(MemoryJobs):
    """A store that takes no note of who executes a job: what was claimed is what runs."""

    async def attribute(self, execution: Execution) -> Attribution:  # noqa: ARG002 - that is the mistake
        return Attribution.UNKNOWN_RUNNER


class Generous(MemoryJobs):
    """A store in which nobody has a limit worth the name."""

    async def ensure_limits(self, tenant: str, os: Os, limit: Size, *, by: str) -> bool:
        del limit
        return await super().ensure_limits(tenant, os, _ENDLESS, by=by)


class FirstCome(MemoryJobs):
    """A store that hands out the oldest job that fits, whosever it is."""

    async def claim(
        self, runner: WarmRunner, *, without: Without = ANYTHING
    ) -> Claimed | NothingToDo:
        tables, answer = self._tables, NothingToDo(NoJob.EMPTY)
        if runner.pod in tables.claims or runner.pod_uid in tables.sessions:
            return await super().claim(runner, without=without)
        for job in may_go(tables, runner.pool, tables.clock.now(), without):
            standing = tables.limits[job.spec.tenant, job.spec.os]
            if job.spec.size.fits(standing.room):
                return self._take(job, standing, runner)
            answer = NothingToDo(NoJob.CAPPED)
        return answer


class Lists(StrEnum):
    """What the API server says when the replicas ask for all Pods."""

    TRUE = "true"
    FAIL = "fail"
    """Nothing; nor when they ask for one."""
    EMPTY = "empty"
    HALF = "half"
    """Only every second, as if a page were missing."""


class Stamping:
    """How stamps fare. Stories change it while they run."""

    def __init__(self, *, sticks: bool = False, slips: bool = False) -> None:
        self.sticks = sticks
        """None can be taken off."""
        self.slips = slips
        """None is written, and nobody looks whether it was."""
        self.lists = Lists.TRUE


class MistakenKube:
    """A Kubernetes on which the stamps and lists of Pods fare as ``stamping`` says."""

    def __init__(self, inner: Kube, stamping: Stamping) -> None:
        self._inner, self._stamping = inner, stamping

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else is as it was
        return getattr(self._inner, name)

    def within(self, seconds: float) -> MistakenKube:
        return MistakenKube(self._inner.within(seconds), self._stamping)

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T:
        if kind is POD and self._stamping.lists is Lists.FAIL:
            raise Unavailable(f"get pods/{name}", why="the server failed", fix="Try again")
        return await self._inner.get(kind, name, namespace=namespace)

    async def list(self, kind: Kind[T], query: Query = _EVERYTHING) -> Listing[T]:
        lists = self._stamping.lists if kind is POD else Lists.TRUE
        if lists is Lists.FAIL:
            raise Unavailable("list pods", why="the server failed", fix="Try again")
        listing = await self._inner.list(kind, query)
        if lists is Lists.TRUE:
            return listing
        shown = listing.items[::2] if lists is Lists.HALF else ()
        return replace(listing, items=shown)

    def watch(self, kind: Kind[T], *query: Query, **how: Any) -> AbstractAsyncContextManager[Any]:  # noqa: ANN401 - as it was asked
        if kind is POD and how.get("streaming_list") and self._stamping.lists is not Lists.TRUE:
            raise Invalid("list pods", why="it gives lists in pages only", fix="List")
        return self._inner.watch(kind, *query, **how)

    async def patch(self, kind: Kind[T], name: str, patch: Patch, **how: str) -> T:
        owner = _owner_after(patch) if kind is POD else ""
        if owner is None and self._stamping.sticks:
            raise Unavailable(f"patch pods/{name}", why="the server failed", fix="Try again")
        if owner and self._stamping.slips:
            return await self._as_if(kind, name, patch, **how)
        return await self._inner.patch(kind, name, patch, **how)

    async def _as_if(self, kind: Kind[T], name: str, patch: Patch, **how: str) -> T:
        """Return what a Pod would be with its stamp, and write nothing."""
        pod = await self._inner.get(kind, name, namespace=how.get("namespace", ""))
        assert isinstance(patch, MergePatch)
        meta = cast("dict[str, dict[str, str]]", patch.changes["metadata"])
        stamped = msgspec.structs.replace(
            pod.metadata,
            labels={**pod.metadata.labels, **meta["labels"]},
            annotations={**pod.metadata.annotations, **meta["annotations"]},
        )
        return msgspec.structs.replace(pod, metadata=stamped)


def _owner_after(patch: Patch) -> str | None:
    """Return the owner that a patch gives a Pod: None if it takes it away, empty if it leaves it alone."""
    if isinstance(patch, JsonPatch):
        return None  # of Pods, dispatch takes nothing away but stamps
    meta = cast("dict[str, dict[str, str | None]]", patch.changes.get("metadata") or {})
    return (meta.get("labels") or {}).get(OWNER, "")


class NaiveReaper:
    """The reaper of the field: no claim and old enough is taken for idle, whatever runs on it."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts

    async def run(self) -> None:
        while True:
            await self._parts.clock.sleep(REAP_EVERY_S)
            try:
                await self._reap()
            except KubeError:
                continue

    async def _reap(self) -> None:
        parts, namespace = self._parts, self._parts.settings.namespace
        query = Query(namespace=namespace, labels=f"{RUNNER}=true,{OWNER}")
        listed = await parts.kube.list(POD, query)
        claimed = {live.claim.pod for live in await parts.views.claims()}
        for pod in listed.items:
            created = pod.metadata.creation_timestamp
            age_s = (parts.clock.now() - created).total_seconds() if created else 0.0
            if pod.name not in claimed and age_s >= parts.settings.recovery.stamped_s:
                await parts.kube.delete(POD, pod.name, namespace=namespace)


class CredulousSearch:
    """Takes a list of Pods at its word: who is not in it is gone, and so is what it held."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts

    async def run(self) -> None:
        parts, namespace = self._parts, self._parts.settings.namespace
        while True:
            await parts.clock.sleep(parts.settings.recovery.tick_s)
            claims = await parts.views.claims()
            try:
                listed = await parts.kube.list(POD, Query(namespace=namespace))
            except KubeError:
                continue
            there = {pod.uid for pod in listed.items}
            for live in claims:
                if live.claim.pod_uid not in there:
                    pod, uid = live.claim.pod, live.claim.pod_uid
                    await parts.store.stop_pod(
                        PodEnd(pod=pod, pod_uid=uid, ended_at=parts.clock.now(), by="dispatch")
                    )
