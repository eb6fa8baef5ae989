"""The operator inside this process, with every write that it makes counted."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kube_client.kubeconfig import load
from remuda.adapters.system import SystemClock, SystemIds
from remuda.control.health import Health
from remuda.kube.runner_pod import PodSettings
from remuda.pools.metrics import PoolMetrics
from remuda.pools.operator import PoolOperator
from remuda.pools.settings import PoolSettings
from remuda.ports.dispatch import Signals
from tests.support.counting import CountingWire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from remuda.ports.dispatch import Dispatch, Stopped
    from remuda.ports.wire import Wire

POD_SETTINGS = PodSettings(dispatch_url="http://127.0.0.1:1")


class IdleDispatch:
    """No jobs wait, and every report is taken."""

    async def signals(self, pool: str) -> Signals:
        del pool
        return Signals()

    async def stopped(self, pod: str, report: Stopped) -> None: ...


@asynccontextmanager
async def an_operator(
    kubeconfig: Path,
    namespace: str,
    *,
    dispatch: Dispatch | None = None,
    meddle: Callable[[Wire], Wire] = lambda wire: wire,
) -> AsyncIterator[CountingWire]:
    """Run one, alone on its Lease. ``meddle`` may put something between it and the server."""
    clock, ids = SystemClock(), SystemIds()
    wire = CountingWire(meddle(HttpWire(load(kubeconfig))))
    election = HttpWire(load(kubeconfig))
    operator = PoolOperator(
        KubeClient(wire),
        KubeClient(election),
        dispatch or IdleDispatch(),
        PoolSettings(namespace=namespace, identity=f"bench-{ids.suffix()}", pod=POD_SETTINGS),
        clock=clock,
        ids=ids,
        metrics=PoolMetrics(CollectorRegistry()),
        health=Health(clock),
    )
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(operator.run(), name="operator")
            yield wire
            running.cancel()
    finally:
        await wire.close()
        await election.close()
