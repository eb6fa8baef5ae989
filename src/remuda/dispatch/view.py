"""
What dispatch sees of the fleet: the runners' Pods and their pools, kept current in memory.

Reads are at once and may be old: what must be true at this moment is asked of the server, by a conditional write. A
missing object means nothing before ``synced``, and never that a runner may be sent home.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.control.cache import by_label
from remuda.control.reflector import Reflector
from remuda.dispatch.fresh_pools import FreshPools
from remuda.kube.core import POD
from remuda.kube.names import POOL, RUNNER
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import Query

if TYPE_CHECKING:
    from remuda.dispatch.settings import DispatchSettings
    from remuda.kube.core import Pod
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube


class DispatchView:
    """``run`` keeps it current."""

    def __init__(self, kube: Kube, settings: DispatchSettings, *, clock: Clock, ids: Ids) -> None:
        self._namespace = settings.namespace
        how = settings.reflector
        ours = Query(namespace=settings.namespace, labels=f"{RUNNER}=true")
        self.pods: Reflector[Pod] = Reflector(kube, POD, ours, clock=clock, ids=ids, settings=how)
        self.runner_pools: Reflector[RunnerPool] = Reflector(
            kube,
            RUNNER_POOL,
            Query(namespace=settings.namespace),
            clock=clock,
            ids=ids,
            settings=how,
        )
        self.pods.index("pool", by_label(POOL))
        self._fresh = FreshPools(kube, settings.namespace, clock=clock)

    async def run(self) -> None:
        """Follow the server until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods.run(), name="view: pods")
            group.create_task(self.runner_pools.run(), name="view: pools")

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once."""
        return self.pods.synced and self.runner_pools.synced

    async def wait_synced(self) -> None:
        await self.pods.wait_synced()
        await self.runner_pools.wait_synced()

    def pod(self, name: str) -> Pod | None:
        return self.pods.get(name, namespace=self._namespace)

    def pool(self, name: str) -> RunnerPool | None:
        return self.runner_pools.get(name, namespace=self._namespace)

    def pools(self) -> tuple[RunnerPool, ...]:
        """Return every pool, in the order of their names."""
        return self.runner_pools.all()

    async def fresh_pool(self, name: str) -> RunnerPool | None:
        """Ask the server for a pool that is not in our view: it may have been made a moment ago. Raises KubeError."""
        return await self._fresh.get(name)

    def pods_of(self, pool: str) -> tuple[Pod, ...]:
        """Return a pool's runners, in the order of their names."""
        return self.pods.found("pool", pool)
