"""The real host operator on a control plane in memory and on virtual time, with Macs that do as they are told."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.control.health import Health
from remuda.hosts.converging import Mode, Outcome, Result
from remuda.hosts.identity import Identity
from remuda.hosts.in_use import HostInUse
from remuda.hosts.metrics import HostMetrics
from remuda.hosts.operator import HostOperator, HostPorts
from remuda.hosts.registration import AppRegistrations, RunnerAtWork
from remuda.hosts.settings import HostSettings
from remuda.kube.core import LEASE, NODE, SECRET, Lease, LeaseSpec, Node, NodeStatus, Secret
from remuda.kube.host import (
    HOST,
    Host,
    HostSpec,
    Provider,
    Role,
    ScalewayProvider,
    SecretRef,
    Ssh,
    StaticProvider,
)
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import FLEET
from remuda.kube.patches import MergePatch
from remuda.kube.times import micro_time
from remuda.model.secret import Secret as Hidden
from remuda.ports.forge import ForgeUnavailable
from remuda.ports.host_shell import Unreachable
from remuda.ports.kube import AlreadyExists, NotFound
from remuda.sim.clock import SimClock
from remuda.sim.fleet.furnish import furnish
from remuda.sim.ids import SeededIds
from remuda.standalone.plane import ControlPlane
from tests.support.scaleway_machines import SlowMachines
from tests.support.scaleway_server import ZONE, FakeScaleway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from remuda.hosts.converging import Emptied, Mint, Pin
    from remuda.hosts.decide.wanted import OwnConfig
    from remuda.hosts.registration import App
    from remuda.model.errors import RemudaError
    from remuda.ports.host_shell import Target
    from remuda.ports.kube import Kube

SPACE = "remuda"
SETTINGS = HostSettings(namespace=SPACE, identity="one", trust_first=True)


@dataclass(slots=True)
class ToldMacs:
    """Every Mac, as the operator's converger finds it. ``errors`` are raised by the next attempts, in order."""

    kube: Kube
    clock: SimClock
    config_hash: str = "v1"
    key: str = "SHA256:first"
    errors: list[RemudaError] = field(default_factory=list)
    dead: Callable[[], RemudaError] | None = None
    """What everything fails with: to log in is not possible at all."""
    off: set[str] = field(default_factory=set)
    """Hosts that nobody can log in to now."""
    attempts: list[tuple[str, Mode, bool]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    reboots: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    registers: bool = False
    """Whether they need a registration token."""
    minted: list[Hidden] = field(default_factory=list)
    midway: Callable[[], Awaitable[None]] | None = None
    """What happens in the middle of an attempt, before the step that harms."""
    harms: bool = False
    """Whether what is to do would end VMs."""
    running: tuple[str, ...] = ()
    """What runs there and has no Pod."""
    mute: list[RemudaError] = field(default_factory=list)
    """What the next questions of what runs there end in, in order."""
    questions: int = 0

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
        self.attempts.append((own.node, mode, await emptied()))
        self.targets.append(target)
        if self.dead is not None:
            raise self.dead()
        if own.node in self.off:
            raise Unreachable(own.node, why="nothing answers", fix="Turn it on")
        await pin(self.key)
        await self.clock.sleep(5)
        if self.errors:
            raise self.errors.pop(0)
        if self.registers and mint is not None:
            self.minted.append(await mint())
        if self.midway is not None:
            await self.midway()
        if self.harms and not await emptied():
            return Outcome(Result.NEEDS_DRAIN, left=("tart",))
        await self._register(own)
        return Outcome(Result.CONVERGED, changed=("agent",))

    async def retire(self, target: Target, role: Role) -> None:
        if role is Role.BUILDER and self.running:
            raise HostInUse("It was left", why=f"these run: {', '.join(self.running)}", fix="Wait")
        self.retired.append(target.address)
        if self.dead is not None:
            raise self.dead()

    async def refuse_in_use(self, target: Target, pin: Pin, what: str) -> None:
        del target
        self.questions += 1
        if self.mute:
            raise self.mute.pop(0)
        if self.dead is not None:
            raise self.dead()
        await pin(self.key)
        if self.running:
            raise HostInUse(what, why=f"these run: {', '.join(self.running)}", fix="Wait")

    async def reboot(self, target: Target, pin: Pin) -> None:
        self.reboots.append(target.address)
        if self.dead is not None:
            raise self.dead()
        await pin(self.key)

    async def _register(self, own: OwnConfig) -> None:
        """Let the agent make its Node."""
        try:
            await self.kube.get(NODE, own.node)
        except NotFound:
            now = self.clock.now().replace(microsecond=0)
            ready = Condition(
                type="Ready",
                status="True",
                reason="Up",
                message=".",
                last_transition_time=now,
                last_heartbeat_time=now,
            )
            metadata = ObjectMeta(name=own.node, labels={FLEET: own.fleet})
            await self.kube.create(
                NODE, Node(metadata=metadata, status=NodeStatus(conditions=(ready,)))
            )


class Identities:
    def __init__(self, clock: SimClock, events: list[str]) -> None:
        self._clock, self._events = clock, events

    async def ensure(self, host: Host) -> Identity:
        return Identity(Hidden(host.name.encode()), self._clock.now() + timedelta(days=60))

    async def remove(self, host: Host) -> None:
        self._events.append(f"identity of {host.name} removed")


@dataclass(slots=True)
class ToldGithub:
    """GitHub, as far as builders need it. ``errors`` are raised by the next mints, in order."""

    errors: list[RemudaError] = field(default_factory=list)
    asked: list[tuple[App, str]] = field(default_factory=list)
    runners: dict[str, bool] = field(default_factory=dict)
    """By name: whether it is online."""
    down: bool = False

    async def remove_runner(self, app: App, organisation: str, name: str) -> None:
        assert (app.installation, organisation) == (41, "acme")
        if self.down:
            raise ForgeUnavailable("It was not removed", why="a storm", fix="Wait")
        if self.runners.get(name):
            raise RunnerAtWork("It was not removed", why="it is online", fix="Remove it yourself")
        self.runners.pop(name, None)

    async def registration_token(self, app: App, organisation: str) -> Hidden:
        self.asked.append((app, organisation))
        if self.errors:
            raise self.errors.pop(0)
        return Hidden(b"canary-token-%d" % len(self.asked))


@dataclass(slots=True)
class Ranch:
    kube: KubeClient
    clock: SimClock
    macs: ToldMacs
    account: FakeScaleway
    metrics: HostMetrics
    events: list[str]
    """What was removed, in order."""
    github: ToldGithub
    rented: SlowMachines

    async def lose_node(self, name: str) -> None:
        """Have a Node vanish, and its agent make none again."""
        await self.kube.delete(NODE, name)

    async def host(self, name: str, **rented: Any) -> None:  # noqa: ANN401 - whatever the provider has
        provider = Provider(static=StaticProvider(address=f"{name}.test"))
        if rented:
            given = {"zone": ZONE, "type": "M2-M", "os": "Sequoia", **rented}
            provider = Provider(scaleway=ScalewayProvider(**given))
        ssh = Ssh(user="m1", key_secret_ref=SecretRef(name="ssh", key="key"))
        spec = HostSpec(provider=provider, ssh=ssh, fleet="barn")
        await self.kube.create(
            HOST, Host(metadata=ObjectMeta(name=name, namespace=SPACE), spec=spec)
        )

    async def get(self, name: str) -> Host:
        return await self.kube.get(HOST, name, namespace=SPACE)

    async def until(self, name: str, is_so: Callable[[Host], bool], within_s: float = 3600) -> Host:
        """Wait until a Host is so. Virtual time costs nothing."""
        deadline = self.clock.monotonic() + within_s
        while not is_so(found := await self.get(name)):
            assert self.clock.monotonic() < deadline, f"in vain: {found.status}"
            await self.clock.sleep(1)
        return found

    async def phase(self, name: str, phase: str, within_s: float = 3600) -> Host:
        return await self.until(name, lambda host: host.status.phase == phase, within_s)

    async def gone(self, name: str, within_s: float = 3600) -> None:
        deadline = self.clock.monotonic() + within_s
        while True:
            try:
                found = await self.get(name)
            except NotFound:
                return
            assert self.clock.monotonic() < deadline, f"still there: {found.status}"
            await self.clock.sleep(1)


async def _alive(kube: Kube, clock: SimClock) -> None:
    """Be the agents: every Node says that it lives."""
    while True:
        for node in (await kube.list(NODE)).items:
            renewed = micro_time(clock.now())
            spec = LeaseSpec(
                holder_identity=node.name, lease_duration_seconds=40, renew_time=renewed
            )
            metadata = ObjectMeta(name=node.name, namespace="kube-node-lease")
            try:
                await kube.create(LEASE, Lease(metadata=metadata, spec=spec))
            except AlreadyExists:
                patch = MergePatch({"spec": {"renewTime": renewed}})
                await kube.patch(LEASE, node.name, patch, namespace="kube-node-lease")
        await clock.sleep(15)


@asynccontextmanager
async def a_ranch(settings: HostSettings = SETTINGS, lose: float = 0.0) -> AsyncIterator[Ranch]:
    """Put up a control plane, an account and an operator that leads."""
    loop = asyncio.get_running_loop()
    clock = SimClock(loop)
    plane = ControlPlane.in_memory(clock, SeededIds(1, "control-plane"))
    account, events = FakeScaleway(), list[str]()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(plane.run(), name="control plane")]
        kube = KubeClient(plane.wire())
        await furnish(plane.wire(), kube, SPACE)
        key = Secret(metadata=ObjectMeta(name="ssh", namespace=SPACE), data={"key": b"private"})
        await kube.create(SECRET, key)
        metrics = HostMetrics(CollectorRegistry())
        macs, github = ToldMacs(kube, clock), ToldGithub()
        chance = random.Random(1)  # noqa: S311 - replays must be predictable
        rented = SlowMachines(account, clock, chance, lose=lose)
        ports = HostPorts(
            kube=KubeClient(plane.wire()),
            election_kube=KubeClient(plane.wire()),
            machines=rented,
            converger=macs,
            identities=lambda _: Identities(clock, events),
            registrations=AppRegistrations(kube, github),
            clock=clock,
            ids=SeededIds(1, "operator"),
        )
        tasks.append(group.create_task(_alive(kube, clock), name="agents"))
        operator = HostOperator(ports, settings, metrics=metrics, health=Health(clock))
        tasks.append(group.create_task(operator.run(), name="operator"))
        try:
            yield Ranch(kube, clock, macs, account, metrics, events, github, rented)
        finally:
            for task in reversed(tasks):
                task.cancel()
