"""The mistakes of the field, each behind a name: what a replica is made with when a guard is switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from remuda.kube.core import POD
from remuda.kube.names import OWNER, RUNNER
from remuda.kube.patches import JsonPatch
from remuda.ports.jobs import Attribution
from remuda.ports.kube import KubeError, Query, Unavailable
from remuda.sim.jobs.store import MemoryJobs

if TYPE_CHECKING:
    from collections.abc import Callable

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


class StickyStamps:
    """A Kubernetes on which, while ``sticks`` says so, the stamp of a claim cannot be taken off a Pod."""

    def __init__(self, inner: Kube, sticks: Callable[[], bool]) -> None:
        self._inner, self._sticks = inner, sticks

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else is as it was
        return getattr(self._inner, name)

    def within(self, seconds: float) -> StickyStamps:
        return StickyStamps(self._inner.within(seconds), self._sticks)

    async def patch(self, kind: Kind[T], name: str, patch: Patch, **how: str) -> T:
        if isinstance(patch, JsonPatch) and kind is POD and self._sticks():
            raise Unavailable(f"patch pods/{name}", why="the server failed", fix="Try again")
        return await self._inner.patch(kind, name, patch, **how)


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
