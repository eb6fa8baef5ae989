"""
A fleet in a world: the real operator in two replicas, hollow hosts, a fake dispatch, and people.

The stories of this package say what is on it and what happens; this puts it up. It checks nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.control.health import Health
from remuda.control.reflector import ReflectorSettings
from remuda.kube.runner_pod import PodSettings
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.pools.guards import Guards
from remuda.pools.metrics import PoolMetrics
from remuda.pools.operator import PoolOperator
from remuda.pools.settings import PoolSettings
from remuda.sim.fleet.desk import Job
from remuda.sim.fleet.disk import HostDisk
from remuda.sim.fleet.dispatch import POLL_TIMEOUT_S, FakeDispatch, behind
from remuda.sim.fleet.dispatch_server import DispatchServer
from remuda.sim.fleet.furnish import a_pool, furnish
from remuda.sim.fleet.host import HollowHost, HostSettings
from remuda.sim.trace import because

if TYPE_CHECKING:
    from remuda.kube.patches import JsonValue, Patch
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.dispatch import Dispatch
    from remuda.sim.world import Process, World

SPACE = "remuda"
FLEET = "barn"
LEASE = "remuda-controller"
CONTROLLERS = ("ctl-a", "ctl-b")
DISPATCH = "dispatch"
PERSON = "person"
PODS = PodSettings(dispatch_url="http://dispatch.test")
REFLECTOR = ReflectorSettings(resync_s=30.0, relist_s=60.0)


class Stage:
    """One world with a fleet on it. Put up with ``furnish``, then hosts and pools, then ``start``."""

    def __init__(self, world: World, broken: frozenset[str] = frozenset()) -> None:
        self.world = world
        self.guards = Guards.without(*sorted(broken))
        self.dispatch = FakeDispatch(world.loop.time)
        self.disks: dict[str, HostDisk] = {}
        self.jobs = 0
        self._registries: dict[str, CollectorRegistry] = {}
        # People do not suffer from the network: what they ask for is what the story says.
        self.person = KubeClient(world.plane.wire())

    async def furnish(self) -> None:
        await furnish(self.world.plane.wire(), self.person, SPACE)

    # --- processes ----------------------------------------------------------------------------------------------

    def start(self, controllers: tuple[str, ...] = CONTROLLERS) -> None:
        """Start dispatch and the operator."""
        self.world.start(
            DISPATCH, lambda process: DispatchServer(process, self.dispatch, SPACE).run()
        )
        for name in controllers:
            self.world.start(name, self._operate)

    def host(self, name: str, **knobs: Any) -> HostDisk:  # noqa: ANN401 - whatever HostSettings has
        """Start a host."""
        settings = replace(HostSettings(name=name, fleet=FLEET), **knobs)
        disk = self.disks[name] = HostDisk()

        async def main(process: Process) -> None:
            desk = behind(process.link, self.dispatch, timeout_s=POLL_TIMEOUT_S)
            host = HollowHost(
                process.kube,
                settings,
                clock=process.clock,
                ids=process.ids,
                disk=disk,
                desk=desk,
            )
            await host.run()

        self.world.start(name, main)
        return disk

    async def _operate(self, process: Process) -> None:
        registry = self._registries[process.name] = CollectorRegistry()
        await operate(process, behind(process.link, self.dispatch), self.guards, registry)

    def gauge(self, name: str, **labels: str) -> float:
        """Return what the leader's metrics say: of all replicas the largest value."""
        values = (registry.get_sample_value(name, labels) for registry in self._registries.values())
        return max((value for value in values if value is not None), default=0.0)

    # --- people -------------------------------------------------------------------------------------------------

    async def pool(self, name: str, **spec: Any) -> RunnerPool:  # noqa: ANN401 - whatever a pool's spec has
        given = {"os": "darwin", "fleet": FLEET, **spec}
        return await self.person.create(RUNNER_POOL, a_pool(name, SPACE, **given))

    async def change(self, name: str, patch: Patch, why: str) -> None:
        """Change a pool as a person would."""
        self.world.trace.note(PERSON, "patch", f"runnerpools/{SPACE}/{name}", "ok", why)
        with because(why):
            await self.person.patch(RUNNER_POOL, name, patch, namespace=SPACE)

    async def find(self, name: str) -> RunnerPool:
        return await self.person.get(RUNNER_POOL, name, namespace=SPACE)

    def job(self, pool: str, lasts_s: float, owner: str = "acme") -> Job:
        """Let a job arrive."""
        self.jobs += 1
        job = Job(f"job-{self.jobs}", pool, lasts_s, owner=owner)
        self.world.trace.add("forge", "queue", job.name, pool, f"{lasts_s:.0f} s of {owner}")
        self.dispatch.enqueue(job)
        return job


async def operate(
    process: Process, dispatch: Dispatch, guards: Guards, registry: CollectorRegistry
) -> None:
    """Be a replica of the real operator."""
    settings = PoolSettings(
        namespace=SPACE,
        identity=f"{process.name}_{process.life}_{process.ids.suffix()}",
        pod=PODS,
        lease_name=LEASE,
        reflector=REFLECTOR,
        guards=guards,
    )
    operator = PoolOperator(
        KubeClient(process.wire),
        KubeClient(process.wire),  # of its own: a busy client must not starve the renewals
        dispatch,
        settings,
        clock=process.clock,
        ids=process.ids,
        metrics=PoolMetrics(registry),
        health=Health(process.clock),
    )
    await operator.run()


def image(text: str) -> dict[str, JsonValue]:
    """Return the change of a pool that rolls it."""
    return {"spec": {"image": text}}
