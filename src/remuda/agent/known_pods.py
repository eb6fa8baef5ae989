"""
The Pods that are bound to this host, as the API server tells them.

A Pod that was not heard of is not gone: that takes two proofs, since what runs for it is stopped and deleted then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from remuda.agent.decide.lifecycle import Wanted
from remuda.control.reflector import Reflector, ReflectorSettings
from remuda.kube.core import POD, Pod
from remuda.kube.names import VM, VM_CLEANUP
from remuda.ports.kube import KubeError, NotFound, Query, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from remuda.control.cache import Key
    from remuda.kube.core import Container
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_BY_UID: Final = "uid"
_RELIST_S: Final = 120.0


def vm_container(pod: Pod) -> Container | None:
    """Return the container that is a VM; None: this Pod asks for none, and is not ours."""
    for container in pod.spec.containers:
        resources = container.resources
        asked = resources.limits.get(VM) or resources.requests.get(VM) or "0"
        if asked != "0":
            return container
    return None


def wanted_of(pod: Pod) -> Wanted:
    """Say what a Pod wants. Deletion is looked at before everything else."""
    if pod.metadata.deletion_timestamp is not None:
        return Wanted.DELETING
    if pod.status.phase in TERMINAL:
        return Wanted.ENDED
    return Wanted.LIVE if VM_CLEANUP in pod.metadata.finalizers else Wanted.NEW


class KnownPods:
    """Reads are from memory. ``run`` keeps them current; ``on_change`` tells whose news there may be."""

    def __init__(self, kube: Kube, node: str, *, clock: Clock, ids: Ids, resync_s: float) -> None:
        self._kube, self._clock = kube, clock
        self._query = Query(fields=f"spec.nodeName={node}")
        settings = ReflectorSettings(resync_s=resync_s, relist_s=_RELIST_S)
        self._pods = Reflector(kube, POD, self._query, clock=clock, ids=ids, settings=settings)
        self._pods.index(_BY_UID, _uid)
        self._told: list[Callable[[str], None]] = []
        self._uids: dict[Key, str] = {}
        self._newer: dict[str, Pod] = {}
        self._gone_since: dict[str, datetime] = {}
        self._pods.on_change(self._changed)

    async def run(self) -> None:
        await self._pods.run()

    @property
    def synced(self) -> bool:
        return self._pods.synced

    async def wait_synced(self) -> None:
        await self._pods.wait_synced()

    def on_change(self, handler: Callable[[str], None]) -> None:
        """Have ``handler`` told the UID of every Pod that may have news, also that of one that is not listed now."""
        self._told.append(handler)

    def get(self, uid: str) -> Pod | None:
        """Return a Pod as it was last heard of, from a watch or as the answer to a write of our own."""
        found = self._pods.found(_BY_UID, uid)
        newer = self._newer.get(uid)
        if newer is not None and found and _version(newer) > _version(found[0]):
            return newer
        self._newer.pop(uid, None)
        return found[0] if found else None

    def all(self) -> tuple[Pod, ...]:
        return self._pods.all()

    def learned(self, pod: Pod) -> None:
        """Take what the server answered to a write: nobody waits for the watch to say the same."""
        if self._pods.found(_BY_UID, pod.uid):
            self._newer[pod.uid] = pod

    @property
    def gone_since(self) -> dict[str, datetime]:
        """Since when Pods have been proven gone, by UID."""
        return dict(self._gone_since)

    def forget(self, uid: str) -> None:
        """Nothing is left that needs the proof."""
        self._gone_since.pop(uid, None)

    async def wanted(self, uid: str, key: Key | None) -> tuple[Wanted, Pod | None]:
        """Say what a Pod wants, with the Pod. ``key`` is what it was called, as far as anybody wrote it down."""
        if (pod := self.get(uid)) is not None:
            return wanted_of(pod), pod
        if uid in self._gone_since:
            return Wanted.GONE, None
        if not self.synced:
            return Wanted.UNREAD, None
        try:
            pod = await self.second_look(uid, key)
        except KubeError as error:
            log.info("a Pod is not listed and could not be asked for", uid=uid, error=str(error))
            return Wanted.UNREAD, None
        if pod is not None:
            return wanted_of(pod), pod
        self._gone_since[uid] = self._clock.now()
        return Wanted.GONE, None

    async def second_look(self, uid: str, key: Key | None) -> Pod | None:
        """Ask the server itself, by name; None: it is gone. A node is refused what is no longer bound to it."""
        if key is not None:
            try:
                found = await self._kube.get(POD, key.name, namespace=key.namespace)
            except NotFound:
                return None
            except Refused:
                pass  # that may be because it is gone: only a list tells
            else:
                return found if found.uid == uid else None
        listing = await self._kube.list(POD, self._query)
        return next((pod for pod in listing.items if pod.uid == uid), None)

    def _changed(self, key: Key) -> None:
        pod = self._pods.get(key.name, namespace=key.namespace)
        before = self._uids.pop(key, "")
        now = pod.uid if pod is not None else ""
        if now:
            self._uids[key] = now
        for uid in dict.fromkeys((before, now)):
            if uid:
                for handler in self._told:
                    handler(uid)


def _uid(pod: Pod) -> Iterable[str]:
    return (pod.uid,)


def _version(pod: Pod) -> int:
    """Versions are numbers since Kubernetes says that they may be compared; what is none is older than all."""
    text = pod.resource_version
    return int(text) if text.isdecimal() else -1
