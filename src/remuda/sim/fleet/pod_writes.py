"""What a hollow host writes about its Pods: from a fresh look, conditionally, and only what differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from remuda.kube.core import POD, Pod, PodStatus
from remuda.kube.names import VM_CLEANUP
from remuda.kube.patches import merge_patch
from remuda.ports.kube import Conflict, NotFound, Seen

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube

Change = Callable[[Pod, "datetime"], PodStatus]
TRIES = 5
"""How often a write that meets another one looks again at once."""


class PodWrites:
    """Writes of one host. A Pod that is gone, or is another one by now, is left alone."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock

    async def status(self, pod: Pod, change: Change) -> bool:
        """Write the status that ``change`` makes of the newest one. Returns whether there was anything to write."""
        if change(pod, self._clock.now()) == pod.status:
            return False  # a life only goes forward: what an older look shows is still so

        def wanted(live: Pod) -> Pod:
            return msgspec.structs.replace(live, status=change(live, self._clock.now()))

        return await self._write(pod, wanted, subresource="status") is not None

    async def hold(self, pod: Pod) -> None:
        """Put our finalizer on, before the host is touched."""

        def wanted(live: Pod) -> Pod:
            if live.metadata.deletion_timestamp is not None:
                return live  # a finalizer cannot be added any more
            return _with_finalizers(live, (*_others(live), VM_CLEANUP))

        await self._write(pod, wanted)

    async def release(self, pod: Pod) -> None:
        """Let a Pod that is being deleted go, now that its VM is gone."""
        live: Pod | None = pod
        if VM_CLEANUP in pod.metadata.finalizers:
            live = await self._write(pod, lambda live: _with_finalizers(live, _others(live)))
        try:
            if live is None:
                live = await self._kube.get(POD, pod.name, namespace=pod.namespace)
            if live.uid == pod.uid and live.metadata.deletion_timestamp is not None:
                seen = Seen(uid=pod.uid)
                await self._kube.delete(
                    POD, pod.name, namespace=pod.namespace, seen=seen, grace_s=0
                )
        except (NotFound, Conflict):
            return  # it went with its finalizer, or is another Pod by now

    async def _write(
        self, pod: Pod, wanted: Callable[[Pod], Pod], *, subresource: str = ""
    ) -> Pod | None:
        """Return the Pod as it was written, or None if there was nothing to write."""
        for attempt in range(TRIES):
            try:
                live = await self._kube.get(POD, pod.name, namespace=pod.namespace)
                after = wanted(live) if live.uid == pod.uid else live
                if after == live:
                    return None
                patch = merge_patch(live, after, conditional=True)
                return await self._kube.patch(
                    POD, pod.name, patch, namespace=pod.namespace, subresource=subresource
                )
            except NotFound:
                return None
            except Conflict:
                if attempt == TRIES - 1:
                    raise
        return None


def _others(pod: Pod) -> tuple[str, ...]:
    return tuple(one for one in pod.metadata.finalizers if one != VM_CLEANUP)


def _with_finalizers(pod: Pod, finalizers: tuple[str, ...]) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, finalizers=finalizers)
    return msgspec.structs.replace(pod, metadata=meta)
