"""
A fleet with jobs in a world: two replicas of the real dispatch, the real operator, hollow hosts, and a forge.

The stories of this package say what is on it and what happens; this puts it up. It checks nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.dispatch.settings import DispatchSettings
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.job import Os, Size
from remuda.pools.guards import Guards
from remuda.sim.clock import SimClock
from remuda.sim.dispatch.guests import Guests
from remuda.sim.dispatch.lines import Balancer, PollLine, behind
from remuda.sim.dispatch.replica import GUARDS, Database, ReplicaMaker
from remuda.sim.fleet.disk import HostDisk
from remuda.sim.fleet.furnish import a_pool, furnish
from remuda.sim.fleet.host import HollowHost, HostSettings
from remuda.sim.forge.github import FakeGithub
from remuda.sim.ids import SeededIds
from remuda.sim.scenarios.dispatch.checks import Handed, NoKill, Stamped
from remuda.sim.scenarios.dispatch.in_time import InTime
from remuda.sim.scenarios.dispatch.returned import Returned
from remuda.sim.scenarios.pools.checks import fencing
from remuda.sim.scenarios.pools.seen import Seen
from remuda.sim.scenarios.pools.stage import CONTROLLERS, FLEET, REFLECTOR, SPACE, operate

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool
    from remuda.sim.forge.things import HubJob
    from remuda.sim.jobs.tables import Tables
    from remuda.sim.world import Process, World

REPLICAS = ("dispatch-a", "dispatch-b")
VCPUS = 4
LIMIT = Size(400, 800 * 1024)
SETTINGS = DispatchSettings(namespace=SPACE, reflector=REFLECTOR, limits={Os.DARWIN: LIMIT})


class DispatchStage:
    """One world with a fleet and a forge on it. Put up with ``furnish``, then hosts and pools, then ``start``."""

    def __init__(
        self,
        world: World,
        broken: frozenset[str] = frozenset(),
        settings: DispatchSettings = SETTINGS,
    ) -> None:
        self.world, self.broken, self.settings = world, broken, settings
        clock = SimClock(world.loop)
        self.forge = FakeGithub(clock, SeededIds(world.seed, "forge"))
        self.database = Database(clock)
        self.guests = Guests()
        self.balancer = Balancer(SeededIds(world.seed, "balancer"))
        self.forge.post.receivers["dispatch"] = self.balancer.receive
        self.replicas = ReplicaMaker(
            settings, self.database, self.forge, self.balancer, broken & GUARDS
        )
        self.replicas.die = lambda name: world.crash(name, why="at a step of an attempt")
        self.disks: dict[str, HostDisk] = {}
        self.handed_at: dict[str, float] = {}
        """By job: when its config first reached a VM."""
        self.may_be_cut_short: set[str] = set()
        self.vcpus = VCPUS
        self.person = KubeClient(world.plane.wire())
        self.seen, self.stamped = Seen(), Stamped(self)
        Handed(self, self.stamped)
        self.in_time, self.returned = InTime(self), Returned(self)
        world.checkers.add(self.seen, self.stamped, NoKill(self), fencing())

    @property
    def tables(self) -> Tables:
        return self.database.tables

    async def furnish(self) -> None:
        await furnish(self.world.plane.wire(), self.person, SPACE)

    def start(self, controllers: tuple[str, ...] = CONTROLLERS[:1]) -> None:
        """Start dispatch and the operator."""
        for name in REPLICAS:
            self.world.start(name, self.replicas.run)
        for name in controllers:
            self.world.start(name, self._operate)
        self.world.group.create_task(self.in_time.run(), name="watch of V1")
        self.world.group.create_task(self.returned.run(), name="watch of V2")

    def host(self, name: str, **knobs: Any) -> HostDisk:  # noqa: ANN401 - whatever HostSettings has
        """Start a host."""
        settings = replace(HostSettings(name=name, fleet=FLEET), **knobs)
        disk = self.disks[name] = HostDisk()

        async def main(process: Process) -> None:
            desk = PollLine(process.link, self.balancer, self.forge, self.guests)
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
        dispatch = behind(process.link, self.balancer)
        await operate(process, dispatch, Guards(), CollectorRegistry())

    async def pool(self, name: str, **spec: Any) -> RunnerPool:  # noqa: ANN401 - whatever a pool's spec has
        given = {"os": "darwin", "fleet": FLEET, "labels": (name,), **spec}
        return await self.person.create(RUNNER_POOL, a_pool(name, SPACE, **given))

    @property
    def limit(self) -> int:
        """How many vCPUs a tenant may use: as it was set, not as the tables have it."""
        return self.settings.limits[Os.DARWIN].vcpus

    def job(
        self, lasts_s: float, *, pool: str = "mac", tenant: str = "acme", repository: str = "app"
    ) -> HubJob:
        """Let a job begin to wait at the forge."""
        return self.forge.queue(tenant, repository, ("self-hosted", pool), lasts_s=lasts_s)
