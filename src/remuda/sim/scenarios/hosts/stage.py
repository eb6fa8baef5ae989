"""A fleet of Macs in a world: the real host operator in two replicas, their agents, VMs that hold jobs, and people."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.control.health import Health
from remuda.control.reflector import ReflectorSettings
from remuda.hosts.decide.lifecycle import Limits
from remuda.hosts.guards import Guards
from remuda.hosts.metrics import HostMetrics
from remuda.hosts.operator import HostOperator, HostPorts
from remuda.hosts.settings import HostSettings
from remuda.kube.core import (
    NODE,
    POD,
    SECRET,
    Container,
    Pod,
    PodSpec,
    ResourceRequirements,
    Secret,
    Toleration,
)
from remuda.kube.host import HOST, Host, HostSpec, Provider, SecretRef, Ssh, StaticProvider
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import RUNNER, VM, VM_HOST_TAINT
from remuda.sim.fleet.furnish import furnish
from remuda.sim.ids import SeededIds
from remuda.sim.macs.macs import Agents, MacConverger, MacIdentities, Macs

if TYPE_CHECKING:
    from remuda.kube.core import Node
    from remuda.sim.world import Process, World

SPACE = "remuda"
FLEET = "barn"
LEASE = "remuda-hosts"
OPERATORS = ("ops-a", "ops-b")
AGENTS = "agents"
LIMITS = Limits(
    updates_max=3,
    pause=timedelta(seconds=30),
    stable=timedelta(seconds=60),
    healthy_within=timedelta(minutes=3),
)
VMS_OUTLIVE_AGENT = "vms_outlive_agent"
"""A switch as the operator's guards are, of the Macs: an agent that starts anew finds its VMs as they were."""
ROLL_PERCENT = 10
REFLECTOR = ReflectorSettings(resync_s=60.0, relist_s=300.0)
BIND_S = 2.0
"""From the choice of a Node to the Pod on it: what a cordon does not stop any more."""


class Stage:
    """One world with Macs. Put up with ``furnish`` and ``host``, then ``start``."""

    def __init__(self, world: World, broken: frozenset[str] = frozenset()) -> None:
        self.world = world
        self.macs = Macs()
        self.build = ""
        """What the next operator that starts wants on every Mac."""
        self.jobs_done = 0
        self.macs.vms_die_with_agent = VMS_OUTLIVE_AGENT in broken
        self._guards = Guards.without(*sorted(broken - {VMS_OUTLIVE_AGENT}))
        self._registries: dict[str, CollectorRegistry] = {}
        # People do not suffer from the network: what they ask for is what the story says.
        self.person = KubeClient(world.plane.wire())

    async def furnish(self) -> None:
        await furnish(self.world.plane.wire(), self.person, SPACE)
        key = Secret(metadata=ObjectMeta(name="ssh", namespace=SPACE), data={"key": b"private"})
        await self.person.create(SECRET, key)

    async def host(self, name: str) -> None:
        self.macs.add(name)
        spec = HostSpec(
            provider=Provider(static=StaticProvider(address=name)),
            ssh=Ssh(user="admin", key_secret_ref=SecretRef(name="ssh", key="key")),
            fleet=FLEET,
        )
        await self.person.create(
            HOST, Host(metadata=ObjectMeta(name=name, namespace=SPACE), spec=spec)
        )

    def start(self, build: str) -> None:
        """Start the operator, and the agents that it will install."""
        self.build = build
        self.world.start(
            AGENTS, lambda p: Agents(KubeClient(p.wire), p.clock, self.macs, FLEET).run()
        )
        for name in OPERATORS:
            self.world.start(name, self._operate)

    def deploy(self, build: str, why: str) -> None:
        """Roll a new release of the operator out, as a Deployment would: its replicas start anew."""
        self.build = build
        self.world.trace.note("person", "deploy", build, "ok", why)
        for name in OPERATORS:
            self.world.stop(name)

    def gauge(self, name: str, **labels: str) -> float:
        """Return what the leader's metrics say: of all replicas the largest value."""
        values = (registry.get_sample_value(name, labels) for registry in self._registries.values())
        return max((value for value in values if value is not None), default=0.0)

    async def _operate(self, process: Process) -> None:
        registry = self._registries[process.name] = CollectorRegistry()
        settings = HostSettings(
            namespace=SPACE,
            identity=f"{process.name}_{process.life}_{process.ids.suffix()}",
            limits=LIMITS,
            roll_percent=ROLL_PERCENT,
            trust_first=True,
            lease_name=LEASE,
            reflector=REFLECTOR,
            guards=self._guards,
        )
        ports = HostPorts(
            kube=KubeClient(process.wire),
            election_kube=KubeClient(process.wire),
            machines=None,
            converger=MacConverger(self.macs, self.build, process),
            identities=lambda _: MacIdentities(process.clock),
            clock=process.clock,
            ids=process.ids,
        )
        operator = HostOperator(
            ports, settings, metrics=HostMetrics(registry), health=Health(process.clock)
        )
        await operator.run()

    # --- work ---------------------------------------------------------------------------------------------------

    async def work(self, at_once: int, lasts_s: tuple[float, float]) -> None:
        """Keep so many VMs busy on hosts that take Pods, until cancelled."""
        chance = SeededIds(self.world.seed, "work").random
        number = 0
        async with asyncio.TaskGroup() as group:
            running: set[asyncio.Task[None]] = set()
            while True:
                running = {task for task in running if not task.done()}
                while len(running) < at_once:
                    number += 1
                    job = self._job(f"vm-{number}", chance.uniform(*lasts_s), chance.random())
                    running.add(group.create_task(job, name=f"job {number}"))
                await asyncio.sleep(5.0)

    async def _job(self, name: str, lasts_s: float, pick: float) -> None:
        """Be one VM with a job: scheduled, run, gone. If it is killed on the way, the Mac has said so."""
        nodes = [n for n in (await self.person.list(NODE)).items if _takes_pods(n)]
        nodes = [node for node in nodes if len(self.macs.macs[node.name].vms) < 2]  # noqa: PLR2004 - macOS allows two
        if not nodes:
            await asyncio.sleep(BIND_S)
            return
        node = nodes[int(pick * len(nodes))]
        await asyncio.sleep(BIND_S)
        await self.person.create(POD, _vm_pod(name, node.name))
        mac = self.macs.macs[node.name]
        mac.vms.add(name)
        await asyncio.sleep(lasts_s)
        mac.vms.discard(name)
        self.jobs_done += 1
        await self.person.delete(POD, name, namespace=SPACE, grace_s=0)


def _takes_pods(node: Node) -> bool:
    ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
    return ready and not node.spec.unschedulable


def _vm_pod(name: str, node: str) -> Pod:
    asks = ResourceRequirements(requests={VM: "1"}, limits={VM: "1"})
    return Pod(
        metadata=ObjectMeta(name=name, namespace=SPACE, labels={RUNNER: "true"}),
        spec=PodSpec(
            node_name=node,
            containers=(Container(name="runner", image="registry.test/runner:1", resources=asks),),
            tolerations=(Toleration(key=VM_HOST_TAINT, operator="Exists"),),
            automount_service_account_token=False,
        ),
    )
