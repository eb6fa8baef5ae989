"""
Simulated Macs: what is installed on each, which VMs run there, and how an attempt to change one goes.

The operator reaches them through ``MacConverger``, in place of SSH. An agent that works keeps its Node Ready; one that
does not lets it fall silent. As on real Macs, a new agent is put in place under VMs that live on, and other rules of
the firewall would end them. Whoever does what ends VMs while there are any is written down in ``killed``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from remuda.hosts.converging import Outcome, Result
from remuda.hosts.identity import Identity
from remuda.kube.core import LEASE, NODE, Lease, LeaseSpec, Node, NodeSpec, NodeStatus, Taint
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import FLEET, RUNTIME, VM, VM_HOST_TAINT
from remuda.kube.patches import MergePatch
from remuda.kube.times import micro_time, whole_seconds
from remuda.model.errors import RemudaError
from remuda.model.secret import Secret
from remuda.ports.kube import AlreadyExists, KubeError, NotFound

if TYPE_CHECKING:
    from remuda.hosts.converging import Emptied, Mint, Mode, Pin
    from remuda.hosts.decide.wanted import OwnConfig
    from remuda.kube.host import Host, Role
    from remuda.ports.clock import Clock
    from remuda.ports.host_shell import Target
    from remuda.ports.kube import Kube
    from remuda.sim.world import Process

LEASES: Final = "kube-node-lease"
LEASE_S: Final = 40
RENEW_S: Final = 20.0
WORK_S: Final = (15.0, 45.0)
"""How long a change of a Mac takes."""


class AgentFailed(RemudaError):
    """The new agent did not start. The one before runs again."""


@dataclass(slots=True)
class Mac:
    """One machine. It outlives every process that works on it."""

    name: str
    build: str = ""
    """What is installed; empty: nothing."""
    speaks: bool = False
    """Whether its agent keeps its Node alive."""
    vms: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Macs:
    """All machines of a story."""

    macs: dict[str, Mac] = field(default_factory=dict)
    crashing: frozenset[str] = frozenset()
    """Builds whose agent ends at once, on every second Mac; on the others it runs and says nothing."""
    with_rules: frozenset[str] = frozenset()
    """Builds that bring other rules of the firewall: no VM survives these."""
    vms_die_with_agent: bool = False
    """Whether a restart of the agent ends the VMs of its Mac. It does not; a story may want to see who notices."""
    killed: list[str] = field(default_factory=list)
    """VMs that were ended under somebody's job."""

    def add(self, name: str) -> Mac:
        return self.macs.setdefault(name, Mac(name))

    def end_vms(self, mac: Mac) -> None:
        """Do what no VM survives."""
        self.killed += [f"{vm} on {mac.name}" for vm in sorted(mac.vms)]
        mac.vms.clear()

    def install(self, mac: Mac, build: str) -> None:
        """Put another agent in place. VMs live on, and their new agent finds them."""
        if self.vms_die_with_agent:
            self.end_vms(mac)
        if build not in self.crashing:
            mac.build, mac.speaks = build, True
            return
        if int(mac.name.rpartition("-")[2]) % 2:
            raise AgentFailed(
                f"{mac.name}: the step agent failed",
                why="the new agent ended three times in a row, and the one before was restored",
                fix="Build an agent that starts",
            )
        mac.build, mac.speaks = build, False


class MacConverger:
    """Changes Macs. Its configuration is one build, as that of one release of the operator."""

    def __init__(self, macs: Macs, build: str, process: Process) -> None:
        self._macs, self._build = macs, build
        self._clock, self._chance = process.clock, process.ids

    @property
    def config_hash(self) -> str:
        return self._build

    async def converge(
        self,
        target: Target,
        own: OwnConfig,
        mode: Mode,
        *,
        emptied: Emptied,
        pin: Pin,
        mint: Mint | None,
    ) -> Outcome:
        del own, mode, mint
        mac = self._macs.macs[target.address]
        await pin(f"SHA256:{mac.name}")
        low, high = WORK_S
        await self._clock.sleep(low + (high - low) * self._chance.fraction())
        if mac.build == self._build:
            return Outcome(Result.CONVERGED)
        changed: tuple[str, ...] = ("agent",)
        if mac.build and self._build in self._macs.with_rules:
            if not await emptied():
                return Outcome(Result.NEEDS_DRAIN, left=("firewall",))
            self._macs.end_vms(mac)
            changed = ("firewall", "agent")
        self._macs.install(mac, self._build)
        return Outcome(Result.CONVERGED, changed=changed)

    async def retire(self, target: Target, role: Role) -> None:
        del role
        self._macs.macs[target.address].speaks = False

    async def refuse_in_use(self, target: Target, pin: Pin, what: str) -> None:
        """Say nothing: here every VM has its Pod, and whoever ends one is noticed."""
        del target, pin, what

    async def reboot(self, target: Target, pin: Pin) -> None:
        del pin
        self._macs.end_vms(self._macs.macs[target.address])


class MacIdentities:
    """Credentials that never end. How they are made is another story."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def ensure(self, host: Host) -> Identity:
        return Identity(Secret(host.name.encode()), self._clock.now() + timedelta(days=60))

    async def remove(self, host: Host) -> None:
        del host


class Agents:
    """The agents of all Macs, as one process: each that works makes its Node, and keeps it Ready."""

    def __init__(self, kube: Kube, clock: Clock, macs: Macs, fleet: str) -> None:
        self._kube, self._clock, self._macs, self._fleet = kube, clock, macs, fleet
        self._speaking: set[str] = set()

    async def run(self) -> None:
        while True:
            for mac in self._macs.macs.values():
                if not mac.speaks:
                    self._speaking.discard(mac.name)
                    continue
                try:
                    await self._speak(mac)
                except KubeError:
                    self._speaking.discard(mac.name)
            await self._clock.sleep(RENEW_S)

    async def _speak(self, mac: Mac) -> None:
        if mac.name not in self._speaking:
            await self._register(mac)
            self._speaking.add(mac.name)
        renewed = MergePatch({"spec": {"renewTime": micro_time(self._clock.now())}})
        try:
            await self._kube.patch(LEASE, mac.name, renewed, namespace=LEASES)
        except NotFound:
            spec = LeaseSpec(
                holder_identity=mac.name,
                lease_duration_seconds=LEASE_S,
                renew_time=micro_time(self._clock.now()),
            )
            metadata = ObjectMeta(name=mac.name, namespace=LEASES)
            await self._kube.create(LEASE, Lease(metadata=metadata, spec=spec))

    async def _register(self, mac: Mac) -> None:
        labels = {FLEET: self._fleet, RUNTIME: "tart"}
        room = {"cpu": "8", "memory": "16Gi", "pods": "10", VM: "2"}
        node = Node(
            metadata=ObjectMeta(name=mac.name, labels=labels),
            spec=NodeSpec(taints=(Taint(key=VM_HOST_TAINT, effect="NoSchedule"),)),
            status=NodeStatus(capacity=room, allocatable=room, conditions=(self._ready(),)),
        )
        try:
            await self._kube.create(NODE, node)
        except AlreadyExists:
            found = await self._kube.get(NODE, mac.name)
            if any(c.type == "Ready" and c.status == "True" for c in found.status.conditions):
                return
            said = {"type": "Ready", "status": "True", "reason": "AgentReady", "message": "It runs"}
            now = self._ready().last_transition_time
            assert now is not None, "it was said just now"
            at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
            times = {"lastTransitionTime": at, "lastHeartbeatTime": at}
            patch = MergePatch({"status": {"conditions": [{**said, **times}]}})
            await self._kube.patch(NODE, mac.name, patch, subresource="status")

    def _ready(self) -> Condition:
        now = whole_seconds(self._clock.now())
        return Condition(
            type="Ready",
            status="True",
            reason="AgentReady",
            message="It runs",
            last_heartbeat_time=now,
            last_transition_time=now,
        )
