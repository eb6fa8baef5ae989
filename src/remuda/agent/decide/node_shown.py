"""
The Node as this host wants it to be: labels, taint, capacity, conditions and where its logs are. Pure.

What others wrote stays: their labels, annotations, conditions and taints are none of ours.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.agent.decide import disk
from remuda.agent.decide.capacity import Slots, allocatable, capacity
from remuda.control.conditions import set_condition
from remuda.kube.core import (
    DaemonEndpoint,
    DaemonEndpoints,
    Node,
    NodeAddress,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    Taint,
)
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import FLEET, RUNTIME, VM_HOST_TAINT, image_label
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from remuda.agent.facts import HostFacts
    from remuda.agent.parts import HostState
    from remuda.agent.settings import AgentSettings
    from remuda.ports.vms import Abilities

OS: Final = "kubernetes.io/os"
ARCH: Final = "kubernetes.io/arch"
HOSTNAME: Final = "kubernetes.io/hostname"
NEEDS_ATTENTION: Final = "remuda.dev/NeedsAttention"
"""Node condition: something on the host is not as the agent left it, and a person should look."""
TAINT: Final = Taint(key=VM_HOST_TAINT, effect="NoSchedule")

_READY: Final = "ready"
_IMAGES: Final = image_label("").rpartition("-")[0] + "-"
_RESERVED: Final = ("kubernetes.io", "k8s.io")
_OPEN_PREFIXES: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OPEN_LABELS: Final = frozenset(
    {
        OS,
        ARCH,
        HOSTNAME,
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_MESSAGE_MAX_CHARS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAbout:
    """What a Node says about its host that does not change while the agent runs."""

    settings: AgentSettings
    abilities: Abilities
    facts: HostFacts
    port: int = 0
    """Where logs are served; 0: nowhere."""


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels that NodeRestriction lets no node set: the API server would refuse the whole Node. BadInput."""
    for key in sorted(labels):
        prefix, slash, _ = key.rpartition("/")
        is_reserved = slash and any(prefix == r or prefix.endswith(f".{r}") for r in _RESERVED)
        is_open = key in _OPEN_LABELS or any(
            prefix == p or prefix.endswith(f".{p}") for p in _OPEN_PREFIXES
        )
        if is_reserved and not is_open:
            raise BadInput(
                f"The label {key} cannot be set by this host",
                why="the API server lets no node set labels of that prefix on itself",
                fix="Use a prefix of your own, or have an administrator set it",
            )


def os_of(about: NodeAbout) -> str:
    """Return the system that pools ask for here: the guests', not the host's. Where there are several, the host's."""
    guests = about.abilities.guest_os
    return about.facts.os if about.facts.os in guests else min(guests, default=about.facts.os)


def labels(about: NodeAbout, state: HostState) -> dict[str, str]:
    """Return all labels that are ours to set."""
    settings = about.settings
    return {
        OS: os_of(about),
        ARCH: about.facts.architecture,
        HOSTNAME: settings.node,
        FLEET: settings.fleet,
        RUNTIME: about.abilities.runtime,
        **settings.labels,
        **{image_label(image): _READY for image in sorted(state.images)},
    }


def changed_labels(
    about: NodeAbout, state: HostState, found: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the labels to set, and, as None, those of images that are gone."""
    wanted = labels(about, state)
    gone = [key for key in found if key.startswith(_IMAGES) and key not in wanted]
    wrong = {key: value for key, value in wanted.items() if found.get(key) != value}
    return {**wrong, **dict.fromkeys(gone)}


def new_node(about: NodeAbout, state: HostState, now: datetime) -> Node:
    """Return the whole Node, for when there is none. Only now can it be given its taint."""
    settings = about.settings
    return Node(
        metadata=ObjectMeta(name=settings.node, labels=labels(about, state)),
        spec=NodeSpec(provider_id=settings.provider_id, taints=(TAINT,)),
        status=status(about, state, NodeStatus(), now),
    )


def lacks_taint(node: Node) -> bool:
    """Say whether Pods that are no runners may be put onto this host."""
    return not any((t.key, t.effect) == (TAINT.key, TAINT.effect) for t in node.spec.taints)


def status(about: NodeAbout, state: HostState, found: NodeStatus, now: datetime) -> NodeStatus:
    """Return the status as it should be; where nothing but the time changed, that is all that differs."""
    slots = Slots(most=state.most_vms, ours=0, foreign=state.most_vms - state.offered_vms)
    offer = about.settings.offer
    disk_bytes = state.disk_space.total_bytes if state.disk_space is not None else None
    conditions = found.conditions
    for wanted in _conditions(state):
        conditions = set_condition(
            conditions, msgspec.structs.replace(wanted, last_heartbeat_time=now), now
        )
    endpoint = DaemonEndpoint(port=about.port) if about.port else None
    return NodeStatus(
        capacity={**found.capacity, **capacity(offer, slots, disk_bytes)},
        allocatable={**found.allocatable, **allocatable(offer, slots, disk_bytes)},
        conditions=conditions,
        addresses=_addresses(about.settings.address),
        daemon_endpoints=DaemonEndpoints(kubelet_endpoint=endpoint) if endpoint else None,
        node_info=_info(about),
    )


def without_times(status: NodeStatus) -> NodeStatus:
    """Return a status without its heartbeats: what is left says whether there is anything to tell."""
    silent = tuple(msgspec.structs.replace(c, last_heartbeat_time=None) for c in status.conditions)
    return msgspec.structs.replace(status, conditions=silent)


def _conditions(state: HostState) -> tuple[Condition, ...]:
    pressed = state.disk.pressure
    troubles = "; ".join(state.troubles)[:_MESSAGE_MAX_CHARS]
    return (
        Condition(
            type="Ready",
            status="False" if state.unfit else "True",
            reason="HostUnfit" if state.unfit else "AgentReady",
            message=state.unfit[:_MESSAGE_MAX_CHARS] or "The agent runs",
        ),
        Condition(
            type="DiskPressure",
            status="True" if pressed else "False",
            reason="DiskNearlyFull" if pressed else "EnoughDisk",
            message=disk.why(state.disk, state.disk_space)[:_MESSAGE_MAX_CHARS],
        ),
        # VMs have memory and processes of their own, and the host's are set aside for them.
        Condition(type="MemoryPressure", status="False", reason="MemorySetAside"),
        Condition(type="PIDPressure", status="False", reason="GuestsHaveTheirOwn"),
        Condition(
            type=NEEDS_ATTENTION,
            status="True" if troubles else "False",
            reason="SeeMessage" if troubles else "NothingOdd",
            message=troubles,
        ),
    )


def _addresses(address: str) -> tuple[NodeAddress, ...]:
    """
    Return the one address at which the API server reaches this host.

    No Hostname beside an IP: many API servers would try the name first, and nobody said that they can resolve it.
    """
    if not address:
        return ()
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return (NodeAddress(type="Hostname", address=address),)
    return (NodeAddress(type="InternalIP", address=address),)


def _info(about: NodeAbout) -> NodeSystemInfo:
    facts = about.facts
    return NodeSystemInfo(
        operating_system=os_of(about),
        architecture=facts.architecture,
        kubelet_version=f"remuda-{facts.agent_version}",
        os_image=facts.os_image,
        kernel_version=facts.kernel,
        machine_id=facts.machine_id,
        system_uuid=facts.machine_id,
        boot_id=facts.boot_id,
    )
