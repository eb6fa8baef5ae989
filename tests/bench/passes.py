"""
What one pass over a pool of 100 runners costs in a fleet of 1,000 and of 10,000: the fleet must not matter.

Measured is what a pass does in this process, observing and deciding, in CPU time, in turns. Nothing is to be done in
either fleet, so nothing is written.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec
from prometheus_client import CollectorRegistry

from remuda.adapters.system import SystemClock, SystemIds
from remuda.control.events import EventRecorder, EventSettings
from remuda.control.health import Health
from remuda.kube.core import NODE, POD, ContainerStatus, Node, NodeStatus, Pod, PodStatus
from remuda.kube.meta import Condition, ObjectMeta, Resource
from remuda.kube.names import FLEET
from remuda.kube.runner_pod import runner_template
from remuda.kube.runner_pool import RUNNER_POOL, RunnerPool, RunnerPoolSpec
from remuda.kube.times import whole_seconds
from remuda.pools.expectations import Expectations
from remuda.pools.hosts import Hosts
from remuda.pools.metrics import PoolMetrics
from remuda.pools.reins import Reins
from remuda.pools.settings import PoolSettings
from remuda.pools.turn import Turns
from remuda.pools.view import FleetView
from remuda.ports.kube import Listing
from tests.support.in_process import POD_SETTINGS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.kube.kinds import Kind
    from remuda.ports.kube import Bookmark, Kube, Query, WatchEvent

T = TypeVar("T", bound=Resource)

NAMESPACE = "ci"
POOL_SIZE = 100
FLEETS = (1_000, 10_000)
VMS = 10
SLICES = 21
PASSES = 30
TARGET = 1.3


class StillKube(Generic[T]):
    """An API server in which nothing happens: it lists, and its watches are silent."""

    def __init__(self, objects: dict[str, tuple[Resource, ...]]) -> None:
        self._objects = objects

    async def list(self, kind: Kind[Resource], query: Query) -> Listing[Resource]:
        del query
        return Listing(self._objects.get(kind.plural, ()), "1")

    @asynccontextmanager
    async def watch(
        self, kind: Kind[Resource], query: Query, **options: object
    ) -> AsyncIterator[AsyncIterator[tuple[WatchEvent[Resource] | Bookmark, ...]]]:
        del kind, query, options
        yield _silence()


async def _silence() -> AsyncIterator[tuple[WatchEvent[Resource] | Bookmark, ...]]:
    await asyncio.Event().wait()
    yield ()


def a_pool(number: int) -> RunnerPool:
    name = f"pool-{number:03d}"
    spec = RunnerPoolSpec(
        image="registry.test/runner:1", fleet="mac", labels=(name,), replicas=POOL_SIZE
    )
    meta = ObjectMeta(
        name=name,
        namespace=NAMESPACE,
        uid=name,
        resource_version="1",
        generation=1,
        finalizers=("remuda.dev/pool-drain",),
    )
    return RunnerPool(metadata=meta, spec=spec)


def runners_of(pool: RunnerPool, number: int) -> list[Pod]:
    """Return a pool's runners, all current and warm."""
    template = runner_template(pool, POD_SETTINGS)
    then = whole_seconds(SystemClock().now() - timedelta(hours=1))
    warm = PodStatus(
        phase="Running",
        conditions=(
            Condition(type="PodScheduled", status="True", last_transition_time=then),
            Condition(type="Ready", status="True", last_transition_time=then),
        ),
        container_statuses=(ContainerStatus(name="runner", ready=True),),
    )
    pods = []
    for n in range(POOL_SIZE):
        name = f"{pool.name}-{n:05d}"
        pod = msgspec.json.decode(template.pod(name), type=Pod)
        meta = msgspec.structs.replace(
            pod.metadata, uid=name, resource_version="1", creation_timestamp=then
        )
        spec = msgspec.structs.replace(pod.spec, node_name=node_name(number * POOL_SIZE + n))
        pods.append(Pod(metadata=meta, spec=spec, status=warm))
    return pods


def node_name(runner: int) -> str:
    return f"mac-{runner // VMS:04d}"


def a_node(number: int) -> Node:
    ready = Condition(type="Ready", status="True")
    meta = ObjectMeta(name=node_name(number * VMS), labels={FLEET: "mac"}, resource_version="1")
    room = {"remuda.dev/vm": str(VMS)}
    return Node(
        metadata=meta, status=NodeStatus(capacity=room, allocatable=room, conditions=(ready,))
    )


def a_fleet_of(runners: int) -> StillKube[Resource]:
    pools = [a_pool(number) for number in range(runners // POOL_SIZE)]
    pods = [pod for number, pool in enumerate(pools) for pod in runners_of(pool, number)]
    nodes = [a_node(number) for number in range(runners // VMS)]
    return StillKube(
        {RUNNER_POOL.plural: tuple(pools), POD.plural: tuple(pods), NODE.plural: tuple(nodes)}
    )


class Shop:
    """What a leader has, over a still fleet."""

    def __init__(self, runners: int) -> None:
        clock, ids = SystemClock(), SystemIds()
        kube = cast("Kube", a_fleet_of(runners))
        settings = PoolSettings(namespace=NAMESPACE, identity="bench", pod=POD_SETTINGS)
        self.view = FleetView(kube, settings, clock=clock, ids=ids)
        reins = Reins(
            kube=kube,
            dispatch=None,
            view=self.view,
            expectations=Expectations(),
            events=EventRecorder(kube, EventSettings(component="bench"), clock=clock, ids=ids),
            settings=settings,
            clock=clock,
            ids=ids,
            metrics=PoolMetrics(CollectorRegistry()),
            health=Health(clock),
        )
        self.turns = Turns(reins, Hosts(reins))

    def cpu_s(self, passes: int) -> float:
        """Take passes over one pool, and return the CPU time of one."""
        pool = self.view.pool("pool-003")
        assert pool is not None
        began = process_time()
        turns = [self.turns.take(pool) for _ in range(passes)]
        took_s = process_time() - began
        assert not any(turn.actions or turn.creations for turn in turns), "nothing is to be done"
        return took_s / passes


async def measure() -> tuple[float, float]:
    """Return the cost of a pass in the small fleet, in seconds, and how many times that it is in the large one."""
    small, large = (Shop(runners) for runners in FLEETS)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(shop.view.run(), name="view") for shop in (small, large)]
        for shop in (small, large):
            await shop.view.wait_synced()
        ratios, costs = [], []
        for number in range(SLICES + 1):
            few, many = small.cpu_s(PASSES), large.cpu_s(PASSES)
            if number:
                ratios.append(many / few)
                costs.append(few)
        for task in tasks:
            task.cancel()
    return median(costs), median(ratios)


def compare() -> bool:
    cost_s, ratio = asyncio.run(measure())
    print(
        f"pass: a pool of {POOL_SIZE} in a fleet of {FLEETS[1]:,} costs {ratio:.2f} x what it costs in one of"
        f" {FLEETS[0]:,} (target {TARGET}), {cost_s * 1000:.2f} ms of CPU"
    )
    return ratio <= TARGET


if __name__ == "__main__":
    sys.exit(0 if compare() else 1)
