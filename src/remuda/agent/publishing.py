"""
What the agent writes about its Pods: status, its own finalizer, and the last delete.

All of it through ``pods/status``: NodeRestriction refuses a node every patch of Pods themselves. Each write is
conditional, touches only what differs, and is made from a fresh look if somebody else was faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from remuda.kube.core import POD
from remuda.kube.names import VM_CLEANUP
from remuda.kube.patches import merge_patch
from remuda.ports.kube import Conflict, NotFound, Refused, Seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.agent.known_pods import KnownPods
    from remuda.kube.core import Pod, PodStatus
    from remuda.ports.kube import Kube

TRIES: Final = 5
"""How often a write that meets another one looks again at once. Then its Pod's task waits and tries again."""


class Publisher:
    """Writes of this host's Pods. One that is gone, or is another by now, is left alone. Raises KubeError."""

    def __init__(self, kube: Kube, pods: KnownPods) -> None:
        self._kube, self._pods = kube, pods

    async def status(self, pod: Pod, change: Callable[[Pod], PodStatus]) -> Pod:
        """Write what ``change`` makes of the newest status. Returns the Pod as it is known to be then."""
        return await self._write(
            pod, lambda live: msgspec.structs.replace(live, status=change(live))
        )

    async def hold(self, pod: Pod) -> Pod:
        """Put our finalizer on, before the host is touched."""

        def wanted(live: Pod) -> Pod:
            if live.metadata.deletion_timestamp is not None:
                return live  # no finalizer can be added any more
            return _with_finalizers(live, (*_others(live), VM_CLEANUP))

        return await self._write(pod, wanted)

    async def release(self, pod: Pod) -> None:
        """Let a Pod that is being deleted go: its VM was seen gone, or there never was one."""
        if VM_CLEANUP in pod.metadata.finalizers:
            await self._write(pod, lambda live: _with_finalizers(live, _others(live)))
        await self.confirm_deletion(pod)

    async def confirm_deletion(self, pod: Pod) -> None:
        """Say, as a kubelet does, that nothing of this Pod is left here. Gone already is success."""
        try:
            await self._kube.delete(
                POD, pod.name, namespace=pod.namespace, seen=Seen(uid=pod.uid), grace_s=0
            )
        except (NotFound, Conflict):
            return
        except Refused:
            if await self._is_there(pod):
                raise

    async def _write(self, pod: Pod, wanted: Callable[[Pod], Pod]) -> Pod:
        live = self._pods.get(pod.uid) or pod
        for _ in range(TRIES - 1):
            try:
                return await self._try(live, wanted(live))
            except Conflict:
                found = await self._fresh(live)
            if found is None:
                return live
            live = found
        return await self._try(live, wanted(live))

    async def _try(self, live: Pod, after: Pod) -> Pod:
        if after == live:
            return live
        patch = merge_patch(live, after, conditional=True)
        try:
            written = await self._kube.patch(
                POD, live.name, patch, namespace=live.namespace, subresource="status"
            )
        except NotFound:
            return live
        self._pods.learned(written)
        return written

    async def _fresh(self, pod: Pod) -> Pod | None:
        try:
            found = await self._kube.get(POD, pod.name, namespace=pod.namespace)
        except NotFound:
            return None
        if found.uid != pod.uid:
            return None
        self._pods.learned(found)
        return found

    async def _is_there(self, pod: Pod) -> bool:
        return await self._pods.second_look(pod.uid, None) is not None


def _others(pod: Pod) -> tuple[str, ...]:
    return tuple(one for one in pod.metadata.finalizers if one != VM_CLEANUP)


def _with_finalizers(pod: Pod, finalizers: tuple[str, ...]) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, finalizers=finalizers)
    return msgspec.structs.replace(pod, metadata=meta)
