"""The demonstration controller: carries out what ``decide`` decided, while it leads. No policy lives here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

from remuda.adapters.kube_client import KubeClient
from remuda.control.election import ElectionSettings, LeaderElector
from remuda.control.fencing import FencedKube
from remuda.control.queue import WorkQueue
from remuda.control.reflector import Reflector, ReflectorSettings
from remuda.control.tasks import run_forever
from remuda.ports.kube import AlreadyExists, Conflict, NotFound, Query
from remuda.sim.scenarios.keep_n.decide import Action, CreateHorse, DeleteHorse, decide
from remuda.sim.scenarios.keep_n.things import (
    CONFIG_MAP,
    HERD_LABEL,
    HORSE_LABEL,
    LEASE,
    NAMESPACE,
    ConfigMap,
    a_horse,
)
from remuda.sim.trace import because

if TYPE_CHECKING:
    from datetime import timedelta

    from remuda.control.cache import Key
    from remuda.ports.kube import Kube
    from remuda.sim.world import Process


class HerdController:
    """One process. ``broken`` names the guards that are left out, so that the checkers can be seen to notice."""

    def __init__(self, process: Process, broken: frozenset[str]) -> None:
        self._process = process
        self._broken = broken
        self._kube: Kube = KubeClient(process.wire)
        relist_s = 1e9 if "relist" in broken else 60.0
        settings = ReflectorSettings(resync_s=30.0, relist_s=relist_s)
        self._herds = self._reflector(HERD_LABEL, settings)
        self._horses = self._reflector(HORSE_LABEL, settings)
        election = ElectionSettings(
            namespace=NAMESPACE,
            name=LEASE,
            identity=f"{process.name}_{process.life}_{process.ids.suffix()}",
        )
        # A client of its own: a busy one must not starve the renewals.
        own = KubeClient(process.wire)
        self._elector = LeaderElector(own, election, clock=process.clock, ids=process.ids)
        if "fencing" not in broken:
            self._kube = FencedKube(self._kube, self._elector)
        self._queue: WorkQueue[str] | None = None

    def _reflector(self, label: str, settings: ReflectorSettings) -> Reflector[ConfigMap]:
        reflector = Reflector(
            self._kube,
            CONFIG_MAP,
            Query(namespace=NAMESPACE, labels=label),
            clock=self._process.clock,
            ids=self._process.ids,
            settings=settings,
        )
        reflector.on_change(self._touch)
        return reflector

    async def run(self) -> None:
        loops = {
            "herds": self._herds.run,
            "horses": self._horses.run,
            "election": lambda: self._elector.run(self._lead),
        }
        await run_forever(loops, asyncio.Event())

    async def _lead(self) -> None:
        process, lease = self._process, f"leases/{NAMESPACE}/{LEASE}"
        process.link.trace.note(process.name, "lead", lease, "ok")
        try:
            await self._work()
        except asyncio.CancelledError:
            if not process.link.severed:
                process.link.trace.note(process.name, "stop-leading", lease, "ok")
                if "fencing" in self._broken and not self._elector.is_leader:
                    await self._work()  # a leader that does not care
            raise

    async def _work(self) -> None:
        await self._herds.wait_synced()
        await self._horses.wait_synced()
        self._queue = WorkQueue("herds", self._reconcile, self._process.ids)
        for herd in self._herds.all():
            self._queue.add(herd.name)
        await self._queue.run()

    def _touch(self, key: Key) -> None:
        """Look at a herd again when it, or one of its horses, has news."""
        if self._queue is None:
            return
        is_herd = self._herds.get(key.name, namespace=key.namespace) is not None
        self._queue.add(key.name if is_herd else key.name.rsplit("-", 1)[0])

    async def _reconcile(self, name: str) -> timedelta | None:
        herd = self._herds.get(name, namespace=NAMESPACE)
        if herd is None:
            return None
        horses = tuple(h for h in self._horses.all() if h.labels.get(HORSE_LABEL) == name)
        actions = decide(herd, horses)
        for action in actions:
            with because(action.why):
                await self._apply(herd, action)
        return None

    async def _apply(self, herd: ConfigMap, action: Action) -> None:
        try:
            match action:
                case CreateHorse():
                    await self._create(herd, action)
                case DeleteHorse():
                    await self._delete(action)
                case _:
                    assert_never(action)
        except (AlreadyExists, Conflict, NotFound):
            # Our view is old. What we did not see yet will come, by the watch or by the next list.
            return

    async def _create(self, herd: ConfigMap, action: CreateHorse) -> None:
        name = action.name
        if "names" in self._broken:
            name = f"{herd.name}-{self._process.ids.suffix()}"
        await self._kube.create(CONFIG_MAP, a_horse(herd, name, brand=action.brand))

    async def _delete(self, action: DeleteHorse) -> None:
        seen = None if "preconditions" in self._broken else action.seen
        await self._kube.delete(CONFIG_MAP, action.name, namespace=NAMESPACE, seen=seen)
