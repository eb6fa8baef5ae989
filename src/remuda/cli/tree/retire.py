"""
Ends runners that have no job, so that a tree that stops leaves nothing running but jobs.

A Pod is deleted only as it was seen: dispatch writes an owner onto it before it hands out a job, so a Pod that gets one
meanwhile is left alone, and one that is being deleted gets none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.cli.tree.parts import NAMESPACE
from remuda.kube.core import POD
from remuda.kube.names import OWNER, RUNNER
from remuda.ports.kube import Conflict, KubeError, NotFound, Query, Seen

if TYPE_CHECKING:
    from remuda.kube.core import Pod
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube

WITHIN_S: Final = 30.0
_POLL_S: Final = 0.2
_ENDED: Final = frozenset({"Succeeded", "Failed"})


async def retire_idle(kube: Kube, clock: Clock) -> bool:
    """Delete runners without a job, and wait until their VMs are gone; False: they are not, or nobody answers."""
    deadline = clock.monotonic() + WITHIN_S
    while clock.monotonic() < deadline:
        try:
            idle = [pod for pod in await _runners(kube) if is_idle(pod)]
            if not idle:
                return True
            for pod in idle:
                if pod.metadata.deletion_timestamp is None:
                    await _delete(kube, pod)
        except KubeError:
            return False
        await clock.sleep(_POLL_S)
    return False


def is_idle(pod: Pod) -> bool:
    """Tell whether a runner may have a VM, and has no job. What ended has a verdict, and its VM goes with the agent."""
    return OWNER not in pod.labels and pod.status.phase not in _ENDED


async def _runners(kube: Kube) -> tuple[Pod, ...]:
    return (await kube.list(POD, Query(namespace=NAMESPACE, labels=f"{RUNNER}=true"))).items


async def _delete(kube: Kube, pod: Pod) -> None:
    try:
        await kube.delete(POD, pod.name, namespace=pod.namespace, seen=_as_seen(pod))
    except (NotFound, Conflict):
        return  # it is gone, or it changed: the next look tells


def _as_seen(pod: Pod) -> Seen:
    return Seen(uid=pod.metadata.uid, resource_version=pod.metadata.resource_version)
