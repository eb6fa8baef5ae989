"""The Node of a host: made, made again, and true."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from remuda.agent.decide.capacity import HostOffer
from remuda.agent.decide.disk import DiskSpace, DiskState
from remuda.agent.decide.node_shown import NEEDS_ATTENTION, NodeAbout, check_labels, new_node
from remuda.agent.facts import HostFacts, address_towards, read_facts
from remuda.agent.node import NodeApi, NodeKeeper
from remuda.agent.parts import HostState
from remuda.agent.permissions import WrongIdentity, check_identity
from remuda.agent.settings import AgentSettings
from remuda.control.cache import Key
from remuda.control.events import EventRecorder, EventSettings
from remuda.control.health import Health
from remuda.control.reflector import Reflector
from remuda.kube.core import NODE, Node, NodeSpec, Taint
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import STARTS_FAILING, image_label
from remuda.model.errors import BadInput
from remuda.ports.kube import Conflict, Query, Refused, Unavailable
from remuda.ports.vms import Abilities
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.unit.agent.builders import IMAGE, NOON
from tests.unit.control.fake_kube import FakeKube, broken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

KEY = Key("", "mac-1")
TART = Abilities(
    runtime="tart",
    guest_os=frozenset({"darwin", "linux"}),
    isolated=True,
    vms_max=2,
    pulls=True,
    shared_goldens=False,
    sees_guest_disk=True,
)
FACTS = HostFacts(os="darwin", architecture="arm64", kernel="25.0", agent_version="1.2")
WELL = HostState(
    offered_vms=2,
    most_vms=2,
    images=frozenset(),
    disk=DiskState(),
    disk_space=DiskSpace(500, 1000),
)
SETTINGS = AgentSettings(
    node="mac-1",
    data=Path("unused"),
    offer=HostOffer(cpus=8, memory_mib=16384, vms=2, pods=110),
    fleet="minis",
    provider_id="scw://par/1",
    address="10.0.0.7",
)
ABOUT = NodeAbout(settings=SETTINGS, abilities=TART, facts=FACTS, port=10250)


class Host:
    """A host on virtual time."""

    def __init__(self, about: NodeAbout = ABOUT) -> None:
        self.kube = FakeKube()
        self.said = FakeKube()
        self.state = WELL
        self.clock = SimClock(asyncio.get_running_loop())
        ids = SeededIds(1, "node")
        self.nodes = Reflector(
            self.kube, NODE, Query(fields="metadata.name=mac-1"), clock=self.clock, ids=ids
        )
        self.events = EventRecorder(
            self.said, EventSettings(component="agent"), clock=self.clock, ids=ids
        )
        self.keeper = NodeKeeper(
            NodeApi(kube=self.kube, nodes=self.nodes, events=self.events),
            about,
            lambda: self.state,
            clock=self.clock,
            ids=ids,
            health=Health(self.clock),
        )

    @property
    def node(self) -> Node:
        node = self.kube.objects[KEY]
        assert isinstance(node, Node)
        return node

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = next(c for c in self.node.status.conditions if c.type == kind)
        return found.status, found.reason, found.message

    async def edit(self, **fields: object) -> None:
        """Have somebody else change the Node."""
        await self.kube.put(msgspec.structs.replace(self.node, **fields))

    async def warnings(self) -> list[str]:
        await self.events.flush()
        return [event.reason for event in self.said.objects.values()]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            await self.keeper.register()
            tasks = [group.create_task(self.nodes.run()), group.create_task(self.keeper.run())]
            await self.clock.sleep(5)
            yield
            for task in tasks:
                task.cancel()


def on_a_host(test: Callable[[Host], Awaitable[None]], about: NodeAbout = ABOUT) -> None:
    async def main() -> None:
        host = Host(about)
        async with host.running():
            await test(host)

    run(main)


def test_a_node_is_made_whole_in_one_write() -> None:
    async def main() -> None:
        host = Host()
        await host.keeper.register()
        assert host.kube.calls == ["get", "create"]
        node = host.node
        assert node.labels == {
            "kubernetes.io/os": "darwin",
            "kubernetes.io/arch": "arm64",
            "kubernetes.io/hostname": "mac-1",
            "remuda.dev/fleet": "minis",
            "remuda.dev/runtime": "tart",
        }
        assert node.spec.taints == (Taint(key="remuda.dev/vm-host", effect="NoSchedule"),)
        assert node.spec.provider_id == "scw://par/1"
        resources = {
            "cpu": "8",
            "memory": "16384Mi",
            "pods": "110",
            "remuda.dev/vm": "2",
            "ephemeral-storage": "1000",
        }
        assert (node.status.capacity, node.status.allocatable) == (resources, resources)
        assert [(a.type, a.address) for a in node.status.addresses] == [("InternalIP", "10.0.0.7")]
        assert node.status.daemon_endpoints is not None
        assert node.status.daemon_endpoints.kubelet_endpoint is not None
        assert node.status.daemon_endpoints.kubelet_endpoint.port == 10250
        assert {c.type: c.status for c in node.status.conditions} == {
            "Ready": "True",
            "DiskPressure": "False",
            "MemoryPressure": "False",
            "PIDPressure": "False",
            NEEDS_ATTENTION: "False",
        }
        assert host.keeper.uid == node.uid

    run(main)


def test_a_node_that_was_deleted_is_made_again() -> None:
    async def test(host: Host) -> None:
        await host.kube.remove(KEY)
        await host.clock.sleep(5)
        assert host.node.spec.taints != ()
        assert host.keeper.uid == host.node.uid

    on_a_host(test)


def test_a_node_of_our_name_is_taken_over_and_what_others_wrote_stays() -> None:
    async def main() -> None:
        host = Host()
        theirs = Condition(type=STARTS_FAILING, status="False", reason="Fine")
        found = Node(
            metadata=ObjectMeta(
                name="mac-1", labels={"team": "ios"}, annotations={"remuda.dev/stage": "[]"}
            ),
            spec=NodeSpec(taints=(Taint(key="remuda.dev/vm-host", effect="NoSchedule"),)),
        )
        status = msgspec.structs.replace(found.status, conditions=(theirs,))
        await host.kube.put(msgspec.structs.replace(found, status=status))
        async with host.running():
            assert host.node.labels["team"] == "ios"
            assert host.node.labels["remuda.dev/fleet"] == "minis"
            assert host.node.metadata.annotations == {"remuda.dev/stage": "[]"}
            assert theirs in host.node.status.conditions
            assert host.condition("Ready")[0] == "True"
            assert host.node.spec.provider_id == "scw://par/1"
            assert await host.warnings() == []

    run(main)


def test_a_missing_taint_is_told_loudly_and_once() -> None:
    async def main() -> None:
        host = Host()
        await host.kube.put(Node(metadata=ObjectMeta(name="mac-1")))
        async with host.running():
            await host.clock.sleep(300)
            assert await host.warnings() == ["TaintMissing"]
            [event] = host.said.objects.values()
            assert "kubectl taint node mac-1 remuda.dev/vm-host:NoSchedule" in event.message
            assert host.node.spec.taints == ()

    run(main)


def test_nothing_is_written_while_nothing_changes_but_a_heartbeat_now_and_then() -> None:
    async def test(host: Host) -> None:
        before, calls = host.node, len(host.kube.calls)
        await host.clock.sleep(300)
        assert 9 <= host.kube.calls[calls:].count("patch") <= 11
        assert host.node.metadata.labels == before.metadata.labels
        heartbeats = {c.last_heartbeat_time for c in host.node.status.conditions}
        assert heartbeats != {c.last_heartbeat_time for c in before.status.conditions}
        since = {c.last_transition_time for c in host.node.status.conditions}
        assert since == {c.last_transition_time for c in before.status.conditions}

    on_a_host(test)


def test_an_image_is_told_of_when_it_comes_and_when_it_goes() -> None:
    async def test(host: Host) -> None:
        host.state = replace(WELL, images=frozenset({IMAGE}))
        host.keeper.poke()
        await host.clock.sleep(2)
        assert host.node.labels[image_label(IMAGE)] == "ready"
        host.state = WELL
        host.keeper.poke()
        await host.clock.sleep(2)
        assert image_label(IMAGE) not in host.node.labels

    on_a_host(test)


def test_a_host_that_runs_no_vm_is_not_ready_and_says_why() -> None:
    async def test(host: Host) -> None:
        host.state = replace(WELL, unfit="Nobody is logged in", troubles=("A record is broken",))
        host.keeper.poke()
        await host.clock.sleep(2)
        assert host.condition("Ready") == ("False", "HostUnfit", "Nobody is logged in")
        assert host.condition(NEEDS_ATTENTION) == ("True", "SeeMessage", "A record is broken")

    on_a_host(test)


@pytest.mark.parametrize(
    "disk", [DiskState(host_low=True), DiskState(full_guests=frozenset({"remuda-1"}))]
)
def test_a_full_disk_of_host_or_guest_is_pressure(disk: DiskState) -> None:
    async def test(host: Host) -> None:
        host.state = replace(WELL, disk=disk)
        host.keeper.poke()
        await host.clock.sleep(2)
        status, reason, message = host.condition("DiskPressure")
        assert (status, reason) == ("True", "DiskNearlyFull")
        assert "50% of the host's disk is free" in message

    on_a_host(test)


def test_a_slot_that_somebody_else_took_is_not_offered() -> None:
    async def test(host: Host) -> None:
        host.state = replace(WELL, offered_vms=1)
        host.keeper.poke()
        await host.clock.sleep(2)
        assert host.node.status.capacity["remuda.dev/vm"] == "2"
        assert host.node.status.allocatable["remuda.dev/vm"] == "1"

    on_a_host(test)


def test_what_a_controller_wrote_about_our_silence_is_taken_back_at_once() -> None:
    async def test(host: Host) -> None:
        unknown = tuple(
            msgspec.structs.replace(c, status="Unknown") for c in host.node.status.conditions
        )
        await host.edit(status=msgspec.structs.replace(host.node.status, conditions=unknown))
        await host.clock.sleep(3)
        assert host.condition("Ready")[0] == "True"

    on_a_host(test)


def test_a_label_of_ours_that_somebody_changed_is_set_right() -> None:
    async def test(host: Host) -> None:
        labels = {**host.node.labels, "remuda.dev/fleet": "other", "team": "ios"}
        await host.edit(metadata=msgspec.structs.replace(host.node.metadata, labels=labels))
        await host.clock.sleep(3)
        assert host.node.labels["remuda.dev/fleet"] == "minis"
        assert host.node.labels["team"] == "ios"

    on_a_host(test)


@pytest.mark.parametrize("sort", [Conflict, Unavailable])
def test_a_write_that_failed_is_made_again(sort: type[Conflict | Unavailable]) -> None:
    async def test(host: Host) -> None:
        host.state = replace(WELL, offered_vms=0)
        host.kube.faults["patch"] = [broken(sort), broken(sort)]
        host.keeper.poke()
        await host.clock.sleep(10)
        assert host.node.status.allocatable["remuda.dev/vm"] == "0"

    on_a_host(test)


def test_registration_waits_for_a_server_that_is_down() -> None:
    async def main() -> None:
        host = Host()
        host.kube.faults["get"] = [broken(Unavailable)] * 5
        await host.keeper.register()
        assert host.keeper.uid

    run(main)


# --- What it says -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guests", "host", "says"),
    [
        (frozenset({"linux"}), "darwin", "linux"),
        (frozenset({"linux"}), "linux", "linux"),
        (frozenset({"darwin", "linux"}), "darwin", "darwin"),
        (frozenset({"darwin", "linux"}), "linux", "linux"),
    ],
)
def test_pools_find_the_system_of_the_guests(guests: frozenset[str], host: str, says: str) -> None:
    about = replace(ABOUT, abilities=replace(TART, guest_os=guests), facts=replace(FACTS, os=host))
    made = new_node(about, WELL, NOON)
    assert made.labels["kubernetes.io/os"] == says


@pytest.mark.parametrize(
    ("address", "types"), [("", []), ("::1", ["InternalIP"]), ("mac.example", ["Hostname"])]
)
def test_one_address_is_told_the_one_that_is_known(address: str, types: list[str]) -> None:
    async def test(host: Host) -> None:
        assert [a.type for a in host.node.status.addresses] == types

    on_a_host(test, replace(ABOUT, settings=replace(SETTINGS, address=address)))


@pytest.mark.parametrize(
    "key",
    [
        "node-restriction.kubernetes.io/x",
        "kubernetes.io/x",
        "node-role.kubernetes.io/a",
        "a.k8s.io/b",
    ],
)
def test_labels_that_no_node_may_set_are_refused_at_the_start(key: str) -> None:
    with pytest.raises(BadInput, match="lets no node set"):
        check_labels({key: "1"})


@pytest.mark.parametrize(
    "key", ["team", "example.com/team", "kubernetes.io/os", "node.kubernetes.io/instance-type"]
)
def test_other_labels_are_taken(key: str) -> None:
    check_labels({key: "1"})


def test_this_machine_can_be_described() -> None:
    facts = read_facts("1.2")
    assert facts.os in {"linux", "darwin"}
    assert facts.architecture in {"amd64", "arm64"}
    assert address_towards("https://127.0.0.1:6443") == "127.0.0.1"
    assert address_towards("https://no-such-host.invalid:1") == ""


# --- Who we are -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["get", "list"])
def test_an_agent_with_another_nodes_name_is_told_so(verb: str) -> None:
    async def main() -> None:
        kube = FakeKube()
        kube.faults[verb] = [broken(Refused)]
        with pytest.raises(WrongIdentity, match="system:node:mac-1"):
            await check_identity(kube, "mac-1")
        await check_identity(kube, "mac-1")

    run(main)
