"""The mistakes of the field, each behind a name: what a replica is made with when a guard is switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from remuda.kube.core import POD
from remuda.kube.names import OWNER, RUNNER
from remuda.kube.patches import JsonPatch, MergePatch
from remuda.ports.jobs import Attribution
from remuda.ports.kube import KubeError, Query, Unavailable
from remuda.sim.jobs.store import MemoryJobs

if TYPE_CHECKING:
    from remuda.dispatch.workers import RecoveryParts
    from remuda.kube.kinds import Kind
    from remuda.kube.meta import Resource
    from remuda.kube.patches import Patch
    from remuda.ports.jobs import Execution
    from remuda.ports.kube import Kube

T = TypeVar("T", bound="Resource")

REAP_EVERY_S = 30.0


class Unbelieving(MemoryJobs):
    """A store that takes no note of who executes a job: what was claimed is what runs."""

    async def attribute(self, execution: Execution) -> Attribution:  # noqa: ARG002 - that is the mistake
        return Attribution.UNKNOWN_RUNNER


class Stamping:
    """How stamps fare. Stories change it while they run."""

    def __init__(self, *, sticks: bool = False, slips: bool = False) -> None:
        self.sticks = sticks
        """None can be taken off."""
        self.slips = slips
        """None is written, and nobody looks whether it was."""


class MistakenKube:
    """A Kubernetes on which the stamps of Pods fare as ``stamping`` says."""

    def __init__(self, inner: Kube, stamping: Stamping) -> None:
        self._inner, self._stamping = inner, stamping

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else is as it was
        return getattr(self._inner, name)

    def within(self, seconds: float) -> MistakenKube:
        return MistakenKube(self._inner.within(seconds), self._stamping)

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
