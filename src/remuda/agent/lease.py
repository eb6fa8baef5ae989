"""
The Node's Lease: the sign of life of this host, renewed on a thread of its own.

The thread has an event loop and a connection of its own, so no VM work, no blocked loop and no full pool of threads can
make it late. But an agent that is stuck must not look alive for ever: its main loop beats, and when it has not for so
many looks in a row, the whole process is ended, with the stacks of all its threads on stderr, for its supervisor to
start it anew. VMs outlive that. Looks are counted, not seconds: a process that was stopped for an hour and goes on is
not stuck.
"""

from __future__ import annotations

import asyncio
import faulthandler
import math
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from remuda.control.backoff import Backoff, spread
from remuda.kube.core import LEASE, NODE, Lease, LeaseSpec
from remuda.kube.meta import ObjectMeta, OwnerReference
from remuda.kube.patches import MergePatch
from remuda.kube.times import micro_time
from remuda.model.errors import RemudaError
from remuda.ports.kube import KubeError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from remuda.kube.patches import JsonValue
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)

NAMESPACE: Final = "kube-node-lease"
EXIT_STUCK: Final = 70
_FAILURES_TO_RECONNECT: Final = 3
_JOIN_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    node: str
    heartbeat_s: float = 10.0
    duration_s: int = 40
    looks_min: int = 12
    stuck_s: float = 120.0
    """So many heartbeats, and for so long, the main loop may miss before the process is ended."""

    @property
    def looks_max(self) -> int:
        return max(self.looks_min, math.ceil(self.stuck_s / self.heartbeat_s))


def end_process(why: str) -> None:
    """End this process at once, and say where each of its threads is."""
    log.critical("the agent is stuck", why=why, fix="See the stacks on stderr; it is started anew")
    with suppress(OSError, ValueError, RuntimeError):
        faulthandler.dump_traceback(all_threads=True)
    os._exit(EXIT_STUCK)


class LeaseKeeper:
    """Renews the Lease over one connection."""

    def __init__(
        self,
        kube: Kube,
        settings: LeaseSettings,
        node_uid: Callable[[], str],
        *,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._kube, self._settings, self._node_uid = kube, settings, node_uid
        self._clock, self._ids = clock, ids
        self._backoff = Backoff(
            first_s=min(0.5, settings.heartbeat_s), longest_s=settings.heartbeat_s
        )
        self._owner = ""

    async def keep(self) -> None:
        """Renew until it failed a few times in a row: then another connection may do better."""
        failures = 0
        while failures < _FAILURES_TO_RECONNECT:
            try:
                # A connection that died unseen swallows a try: the next one opens another.
                async with asyncio.timeout(self._settings.heartbeat_s):
                    await self._renew()
            except (KubeError, TimeoutError) as error:
                failures += 1
                log.warning("lease not renewed", error=str(error) or "no answer in time")
                await self._clock.sleep(self._backoff.wait_s(failures, self._ids.fraction()))
            else:
                failures = 0
                await self._clock.sleep(spread(self._settings.heartbeat_s, self._ids.fraction()))

    async def _renew(self) -> None:
        node, uid = self._settings.node, self._node_uid()
        try:
            lease = await self._kube.patch(LEASE, node, self._patch(uid), namespace=NAMESPACE)
        except NotFound:
            lease = await self._kube.create(LEASE, self._new(uid))
            log.info("lease made", node=node)
        self._owner = next((o.uid for o in lease.metadata.owner_references), "")

    def _patch(self, uid: str) -> MergePatch:
        changes: dict[str, JsonValue] = {
            "spec": {
                "holderIdentity": self._settings.node,
                "leaseDurationSeconds": self._settings.duration_s,
                "renewTime": micro_time(self._clock.now()),
            }
        }
        if uid and uid != self._owner:
            # A Lease goes with its Node. One of an earlier Node would be taken away from under us.
            owner: dict[str, JsonValue] = {
                "apiVersion": NODE.api_version,
                "kind": NODE.name,
                "name": self._settings.node,
                "uid": uid,
            }
            changes["metadata"] = {"ownerReferences": [owner]}
        return MergePatch(changes)

    def _new(self, uid: str) -> Lease:
        node = self._settings.node
        owner = OwnerReference(api_version=NODE.api_version, kind=NODE.name, name=node, uid=uid)
        return Lease(
            metadata=ObjectMeta(
                name=node, namespace=NAMESPACE, owner_references=(owner,) if uid else ()
            ),
            spec=LeaseSpec(
                holder_identity=node,
                lease_duration_seconds=self._settings.duration_s,
                renew_time=micro_time(self._clock.now()),
            ),
        )


class LeaseThread:
    """Keeps the Lease fresh from a thread of its own, for as long as ``run`` runs and the main loop turns."""

    def __init__(
        self,
        settings: LeaseSettings,
        connect: Callable[[], AbstractAsyncContextManager[Kube]],
        node_uid: Callable[[], str],
        *,
        clock: Clock,
        ids: Ids,
        die: Callable[[str], None] = end_process,
    ) -> None:
        self._settings, self._connect, self._node_uid = settings, connect, node_uid
        self._clock, self._ids, self._die = clock, ids, die
        self._beats = 0
        self._stop = threading.Event()
        self._wake: Callable[[], object] = _nothing

    async def run(self) -> None:
        """Beat on the main loop until cancelled; then the thread ends too. Raises if the thread ended by itself."""
        thread = threading.Thread(target=self._run_thread, name="node lease", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                self._beats += 1
                await self._clock.sleep(self._settings.heartbeat_s / 2)
            raise RuntimeError(
                "The thread that renews the Lease ended by itself; see the log above"
            )
        finally:
            self._stop.set()
            self._wake()
            await asyncio.to_thread(thread.join, _JOIN_S)

    # --- On the thread ------------------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has closed meanwhile: it ended by itself
                loop.call_soon_threadsafe(woken.set)

        self._wake = wake
        if self._stop.is_set():
            return
        async with asyncio.TaskGroup() as group:
            tasks = {
                group.create_task(self._keep(), name="lease"),
                group.create_task(self._watch(), name="beats of the main loop"),
                group.create_task(woken.wait(), name="stop"),
            }
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()

    async def _keep(self) -> None:
        while True:
            try:
                async with self._connect() as kube:
                    keeper = LeaseKeeper(
                        kube, self._settings, self._node_uid, clock=self._clock, ids=self._ids
                    )
                    await keeper.keep()
            except RemudaError as error:
                log.warning("no connection for the lease", error=str(error))
                await self._clock.sleep(self._settings.heartbeat_s / 2)

    async def _watch(self) -> None:
        """Return when the main loop is stuck and the process was told to die: then nothing is renewed any more."""
        seen, still = self._beats, 0
        while still < self._settings.looks_max:
            await self._clock.sleep(self._settings.heartbeat_s)
            still = still + 1 if self._beats == seen else 0
            seen = self._beats
        self._die(f"its main loop has not turned for {still} heartbeats")


def _nothing() -> None:
    return
