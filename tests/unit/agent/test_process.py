"""The agent's parts together, in one process with its API server: begun, ended, begun again; what it says of itself."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from remuda.adapters.kube_client import KubeClient
from remuda.adapters.system import SystemClock, SystemIds
from remuda.agent.decide.capacity import HostOffer
from remuda.agent.decide.disk import DiskMarks
from remuda.agent.metrics import AgentMetrics
from remuda.agent.process import Agent, AgentPorts, BeatingClock
from remuda.agent.settings import AgentSettings
from remuda.control.health import Health
from remuda.kube.core import EVENT, NODE, POD
from remuda.kube.names import VM, VM_CLEANUP, image_label
from remuda.model.errors import BadInput
from remuda.ports.desk import NoJobYet, ReportReply
from remuda.ports.kube import Manifest, NotFound, Query, Unavailable
from remuda.ports.vms import TimedOut, vm_name
from remuda.standalone.plane import ControlPlane
from tests.support.eventually import eventually
from tests.support.memory_vms import Disk, MemoryVms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from remuda.kube.core import Node, Pod
    from remuda.ports.desk import FilePiece, JobReport, PollAnswer
    from remuda.ports.kube import Kube
    from remuda.ports.vms import Inventory

T = TypeVar("T")

HOST = "mini-1"
IMAGE = "registry.test/mac@sha256:" + "a" * 64
WAIT_S = 60.0


class NoJobs:
    """A dispatch that never has any."""

    def acting_as(self, bearer: Callable[[], str]) -> NoJobs:
        del bearer
        return self

    async def poll(self) -> PollAnswer:
        await SystemClock().sleep(1.0)
        return NoJobYet()

    async def report(self, pod: str, report: JobReport) -> ReportReply:
        del pod, report
        return ReportReply()

    async def fetch_files(self, pod: str, offset: int) -> bytes:
        raise AssertionError(f"{pod} has no job, and asks for its files from {offset} on")

    async def send_files(self, pod: str, piece: FilePiece) -> int:
        raise AssertionError(f"{pod} has no job, and sends files from {piece.offset} on")


@asynccontextmanager
async def no_way() -> AsyncIterator[Kube]:
    """Be the connection of the Lease's thread: a server in memory has but one loop."""
    raise Unavailable("The Lease is not renewed", why="nobody is there", fix="This is a test")
    yield  # what makes it a context manager


class BlindVms(MemoryVms):
    """A driver that cannot list what there is."""

    async def inventory(self) -> Inventory:
        raise TimedOut("Nothing was listed", why="it hung", fix="Look at it", op="list")


@dataclass
class Stable:
    """What outlives an agent."""

    folder: Path
    clock: SystemClock = field(default_factory=SystemClock)
    blind: bool = False
    disk: Disk = field(default_factory=lambda: Disk(registry={IMAGE: 10}, free_bytes=10_000))

    def __post_init__(self) -> None:
        self.plane = ControlPlane.in_memory(self.clock, SystemIds())
        self.kube = KubeClient(self.plane.wire())
        self.health = Health(self.clock)

    def agent(self) -> Agent:
        ports = AgentPorts(
            kube=self.kube,
            lease_kube=no_way,
            vms=(BlindVms if self.blind else MemoryVms)(self.disk, self.folder / "vms", self.clock),
            vm_folders=(self.folder,),
            desks=NoJobs(),
            clock=self.clock,
            ids=SystemIds(),
            version="1",
        )
        settings = AgentSettings(
            node=HOST,
            data=self.folder / "data",
            offer=HostOffer(cpus=8, memory_mib=16384, vms=2, pods=10),
            fleet="stable",
            address="10.0.0.7",
            look_s=0.5,
            disk=DiskMarks(
                host_free_low=1e-9,
                host_free_ok=1e-9,
                reclaim_below=1e-9,
                reclaim_until=1e-9,
                keep_free_bytes=0,
                unknown_image_bytes=0,
            ),
        )
        metrics = AgentMetrics(CollectorRegistry())
        return Agent(ports, settings, metrics=metrics, health=self.health)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Agent]:
        """Run one until it is ready, and end it as SIGTERM does."""
        agent = self.agent()
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(agent.run())
                await eventually(lambda: _of(agent.ready()), lambda r: r[0], within_s=WAIT_S)
                yield agent
                task.cancel()
        finally:
            agent.close()

    async def add_pod(self, name: str = "runner-1") -> Pod:
        asked = {"cpu": "2", "memory": "2Gi", VM: "1"}
        container = {"name": "runner", "image": IMAGE, "resources": {"limits": asked}}
        body = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": HOST, "restartPolicy": "Never", "containers": [container]},
        }
        return await self.kube.create(POD, Manifest(json.dumps(body).encode(), "default"))

    async def pod(self, name: str = "runner-1") -> Pod | None:
        with suppress(NotFound):
            return await self.kube.get(POD, name, namespace="default")
        return None

    async def node(self) -> Node | None:
        with suppress(NotFound):
            return await self.kube.get(NODE, HOST)
        return None

    async def events(self) -> list[tuple[str, str, str, str]]:
        """Return about what each Event is, its reason and its type."""
        found = (await self.kube.list(EVENT, Query())).items
        about = ((e, e.involved_object) for e in found)
        return [(it.kind, it.name, event.reason, event.type) for event, it in about]

    def runs(self, pod: Pod) -> bool:
        vm = self.disk.vms.get(vm_name(pod.uid))
        return vm is not None and vm.running


@pytest.fixture
def stable(tmp_path: Path) -> Stable:
    return Stable(tmp_path)


async def test_two_agents_never_share_records(stable: Stable) -> None:
    first = stable.agent()
    with pytest.raises(BadInput, match="another agent holds them"):
        stable.agent()
    first.close()
    stable.agent().close()


async def test_before_it_runs_it_is_not_ready_and_says_why(stable: Stable) -> None:
    agent = stable.agent()
    assert agent.ready() == (False, "the Node is not registered yet")
    agent.close()


async def test_while_its_vms_cannot_be_listed_it_is_not_ready(stable: Stable) -> None:
    stable.blind = True
    agent = stable.agent()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(agent.run())
        wanted = (False, "the VMs of this host are not listed yet")
        await eventually(lambda: _of(agent.ready()), lambda said: said == wanted, within_s=WAIT_S)
        assert await stable.node() is not None, "its Node is there all the same"
        told = ("Node", HOST, "DriverStuck", "Warning")
        await eventually(stable.events, lambda said: told in said, within_s=WAIT_S)
        task.cancel()
    agent.close()


async def test_ready_it_has_a_node_and_all_its_loops_are_watched(stable: Stable) -> None:
    async with stable.running():
        node = await stable.node()
        assert node is not None
        assert node.labels["remuda.dev/fleet"] == "stable"
        assert stable.health.problems(stable.clock.monotonic()) == ()
        late = stable.health.problems(stable.clock.monotonic() + 1e6)
        watched = {problem.split()[1] for problem in late}
        assert watched >= {"node", "keeper", "garbage", "disks"}
    assert stable.health.problems(stable.clock.monotonic() + 1e6) == (), "it ended on purpose"


async def test_ended_it_leaves_vms_running_and_the_next_one_takes_them_up(stable: Stable) -> None:
    async with stable.running():
        pod = await stable.add_pod()
        await eventually(lambda: _of(stable.runs(pod)), within_s=WAIT_S)
    assert stable.runs(pod), "an agent that ends must not end its VMs"
    held = await stable.pod()
    assert held is not None
    assert VM_CLEANUP in held.metadata.finalizers

    async with stable.running():
        await stable.kube.delete(POD, pod.name, namespace="default")
        await eventually(stable.pod, lambda left: left is None, within_s=WAIT_S)
    assert vm_name(pod.uid) not in stable.disk.vms


async def test_a_staged_image_is_shown_by_the_node_and_starts_nothing(stable: Stable) -> None:
    said: list[str] = []
    async with stable.running() as agent:
        await agent.stage(IMAGE, said.append)

        async def labels() -> dict[str, str]:
            node = await stable.node()
            return dict(node.labels) if node is not None else {}

        shown = await eventually(labels, lambda found: image_label(IMAGE) in found, within_s=WAIT_S)
    assert shown[image_label(IMAGE)] == "ready"
    assert said, "how far it is, is told"
    assert not any(vm.running for vm in stable.disk.vms.values())


async def test_a_clock_that_sleeps_beats_for_its_loop(stable: Stable) -> None:
    clock = BeatingClock(stable.clock, stable.health, "loop")
    with stable.health.watched("loop", 1000.0):
        began = stable.clock.monotonic()
        await clock.sleep(0.1)
        assert stable.health.problems(began + 1000.05) == ()


async def _of(value: T) -> T:
    return value
