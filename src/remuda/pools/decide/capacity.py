"""
What fits on the hosts of a fleet, and what one runner takes. Pure.

VM hosts count ``remuda.dev/vm``; ordinary nodes (Kata Pods) count memory, because their CPUs are shared on purpose.
Room is kept per host: 12 GiB free on each of two hosts do not hold a runner of 16 GiB.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import UNSET

from remuda.kube.names import VM
from remuda.kube.node_view import UNHEALTHY_REASONS, unhealthy_reason
from remuda.kube.quantity import parse_quantity
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from remuda.kube.core import Node, RuntimeClass
    from remuda.kube.runner_pool import RunnerPool

MEMORY_PERCENT = 90
"""How much of a node's allocatable memory runners may take; the rest is for what else runs there."""


class Unit(StrEnum):
    """What a fleet runs out of."""

    VM = "vm"
    MEMORY = "memory"


AVOIDED = "avoided"
"""Why a host counts for nothing: runners fail to start there (see ``avoidance``)."""
UNREADABLE = "unreadable"
"""Likewise: its allocatable is missing, or no quantity."""
FILTERED_REASONS = (*UNHEALTHY_REASONS, AVOIDED, UNREADABLE)


@dataclass(frozen=True, slots=True)
class Room:
    """Free units per host, as (free, number of hosts with that much), the fullest first. Nobody is named."""

    levels: tuple[tuple[int, int], ...] = ()

    @property
    def free(self) -> int:
        return sum(free * hosts for free, hosts in self.levels)

    def fits(self, cost: int) -> bool:
        """Tell whether one runner of this cost has a host."""
        return bool(self.levels) and self.levels[-1][0] >= cost

    def usable(self, cost: int) -> int:
        """Return what runners of this cost could take of it: on each host a whole number of them."""
        return sum(free // cost * cost * hosts for free, hosts in self.levels)

    def place(self, cost: int, count: int) -> tuple[Room, int]:
        """Put up to ``count`` runners onto the fullest hosts that hold them. Return what is left, and how many fit."""
        assert cost > 0
        wanted, hosts_by_free = count, Counter(dict(self.levels))
        for free, hosts in self.levels[bisect_left(self.levels, (cost, 0)) :]:
            if not wanted:
                break
            each = free // cost
            full = min(hosts, wanted // each)
            last = wanted - full * each if full < hosts else 0
            hosts_by_free[free] -= full + (1 if last else 0)
            hosts_by_free[free - each * cost] += full
            hosts_by_free[free - last * cost] += 1 if last else 0
            wanted -= full * each + last
        return _room(hosts_by_free), count - wanted


def _room(hosts_by_free: Mapping[int, int]) -> Room:
    return Room(tuple(sorted((free, n) for free, n in hosts_by_free.items() if free > 0 and n > 0)))


def room(free_per_host: Iterable[int]) -> Room:
    """Return the room of hosts with this much free on each."""
    return _room(Counter(free_per_host))


@dataclass(frozen=True, slots=True)
class FleetRoom:
    """The room of a fleet, and which hosts were left out of it."""

    room: Room
    filtered: tuple[tuple[str, str], ...] = ()
    """By name, each with one of ``FILTERED_REASONS``."""

    def count(self, reason: str) -> int:
        return sum(1 for _, why in self.filtered if why == reason)


def room_of(
    nodes: Iterable[Node],
    unit: Unit,
    *,
    avoided: Collection[str] = (),
    memory_percent: int = MEMORY_PERCENT,
) -> FleetRoom:
    """Return what the healthy hosts hold when they are empty. What runs now is demand, and is placed like the rest."""
    free: list[int] = []
    filtered: list[tuple[str, str]] = []
    for node in sorted(nodes, key=lambda n: n.name):
        why = unhealthy_reason(node) or (AVOIDED if node.name in avoided else "")
        units = None if why else _units(node, unit, memory_percent)
        if units is None:
            filtered.append((node.name, why or UNREADABLE))
        else:
            free.append(units)
    return FleetRoom(room(free), tuple(filtered))


def _units(node: Node, unit: Unit, memory_percent: int) -> int | None:
    match unit:
        case Unit.VM:
            return _amount(node.status.allocatable.get(VM))
        case Unit.MEMORY:
            memory = _amount(node.status.allocatable.get("memory"))
            return None if memory is None else memory * memory_percent // 100


def _amount(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        amount = parse_quantity(text).ceil()
    except BadInput:
        return None
    return amount if amount >= 0 else None


def unit_of(pool: RunnerPool) -> Unit:
    """Return what this pool uses up. With a runtime class it runs on ordinary kubelets, else as VMs of the agent."""
    return Unit.VM if pool.spec.runtime_class_name is UNSET else Unit.MEMORY


def cost_of(pool: RunnerPool, runtime_class: RuntimeClass | None) -> int | None:
    """Return the units that one runner takes; None if that cannot be known, as without its RuntimeClass."""
    if unit_of(pool) is Unit.VM:
        return 1
    if runtime_class is None:
        return None
    fixed = runtime_class.overhead.pod_fixed if runtime_class.overhead else {}
    memory, overhead = _amount(pool.spec.resources.memory), _amount(fixed.get("memory", "0"))
    if not memory or overhead is None:  # a runner that takes nothing would fit without end
        return None
    return memory + overhead
