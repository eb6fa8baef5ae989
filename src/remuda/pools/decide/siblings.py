"""
What one pool should have, seen together with the pools that share its hosts. Pure.

Every unknown has a direction. Unknown demand or cost: hold. Unknown demand of a sibling, or unknown hosts: the pool's
own target, so that a blip neither removes capacity nor stops a pool from growing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import UNSET

from remuda.kube.names import FLEET
from remuda.pools.decide.allocation import Ask, allocate
from remuda.pools.decide.capacity import MEMORY_PERCENT, FleetRoom, cost_of, room_of, unit_of
from remuda.pools.decide.scaling import load, target
from remuda.pools.decide.schedules import FloorNow, min_warm_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from remuda.kube.core import Node, RuntimeClass
    from remuda.kube.runner_pool import RunnerPool
    from remuda.ports.dispatch import Signals

OS_LABEL = "kubernetes.io/os"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSeen:
    """What is known at one moment. What could not be read is None, or not there."""

    pools: tuple[RunnerPool, ...]
    """The pools of the namespace; those of other fleets are left out here."""
    signals: Mapping[str, Signals | None]
    """By pool. None, or missing: unknown."""
    nodes: tuple[Node, ...] | None
    runtime_classes: Mapping[str, RuntimeClass] = field(default_factory=dict)
    """By name. One that could not be read is missing."""
    avoided: frozenset[str] = frozenset()
    """Hosts that new runners stay away from."""
    memory_percent: int = MEMORY_PERCENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a pool should have, and from what that follows."""

    replicas: int | None
    """None: hold, whatever replicas are."""
    why: str
    load: int = 0
    floor: int = 0
    target: int = 0
    faults: tuple[str, ...] = ()
    """What a person should mend, a sentence each."""


def is_autoscaled(pool: RunnerPool) -> bool:
    """Tell whether the autoscaler owns this pool's replicas. Without a maximum it keeps its hands off."""
    scaling = pool.spec.autoscaling
    has_maximum = scaling.max_replicas is not UNSET and scaling.max_replicas > 0
    return scaling.enabled and has_maximum and pool.metadata.deletion_timestamp is None


def wanted(name: str, seen: FleetSeen, now: datetime) -> Wanted:
    """Decide for one pool."""
    pool = next((p for p in seen.pools if p.name == name), None)
    if pool is None:
        return Wanted(replicas=None, why="the pool is not there")
    if not is_autoscaled(pool):
        return Wanted(replicas=None, why=_left_alone(pool))
    floor = min_warm_at(pool.spec.autoscaling, now)
    signals = seen.signals.get(name)
    if signals is None:
        return Wanted(replicas=None, why="its demand is unknown", faults=floor.faults)
    ask = _ask(pool, signals, floor, cost=1)
    replicas, why = _shared(pool, ask, seen, now)
    return Wanted(
        replicas=replicas,
        why=why,
        load=ask.load,
        floor=ask.floor,
        target=ask.target,
        faults=floor.faults,
    )


def group_of(pool: RunnerPool, pools: tuple[RunnerPool, ...]) -> list[RunnerPool]:
    """Return the autoscaled pools that share hosts and unit with this one, itself among them, by name."""
    key = (pool.namespace, pool.spec.os, pool.spec.fleet, unit_of(pool))
    return sorted(
        (
            p
            for p in pools
            if (p.namespace, p.spec.os, p.spec.fleet, unit_of(p)) == key and is_autoscaled(p)
        ),
        key=lambda p: p.name,
    )


def fleet_room(pool: RunnerPool, seen: FleetSeen) -> FleetRoom | None:
    """Return the room of the hosts that this pool's runners may be put on; None if the hosts are unknown."""
    if seen.nodes is None:
        return None
    needed = {FLEET: pool.spec.fleet, OS_LABEL: pool.spec.os.value}
    nodes = [n for n in seen.nodes if needed.items() <= n.labels.items()]
    return room_of(nodes, unit_of(pool), avoided=seen.avoided, memory_percent=seen.memory_percent)


def _shared(pool: RunnerPool, own: Ask, seen: FleetSeen, now: datetime) -> tuple[int | None, str]:
    group = group_of(pool, seen.pools)
    costs = {p.name: cost_of(p, _runtime_class(p, seen)) for p in group}
    for name, cost in costs.items():
        if cost is None:
            return (
                None,
                f"what a runner of {name} takes is unknown: its RuntimeClass cannot be read",
            )
    for p in group:
        if seen.signals.get(p.name) is None:
            return own.target, f"its own target: the demand of {p.name} is unknown"
    hosts = fleet_room(pool, seen)
    if hosts is None:
        return own.target, "its own target: the hosts are unknown"
    if hosts.room.free == 0:
        return own.target, "its own target: no host of the fleet is healthy"
    shares = allocate(_asks(group, costs, seen, now), hosts.room)
    return shares[pool.name], _why(shares[pool.name], own)


def _asks(
    group: list[RunnerPool], costs: Mapping[str, int | None], seen: FleetSeen, now: datetime
) -> list[Ask]:
    asks = []
    for pool in group:
        cost, signals = costs[pool.name], seen.signals[pool.name]
        assert cost is not None
        assert signals is not None
        asks.append(_ask(pool, signals, min_warm_at(pool.spec.autoscaling, now), cost))
    return asks


def _ask(pool: RunnerPool, signals: Signals, floor: FloorNow, cost: int) -> Ask:
    max_replicas = pool.spec.autoscaling.max_replicas
    assert max_replicas is not UNSET
    return Ask(
        pool=pool.name,
        cost=cost,
        floor=floor.min_warm,
        load=load(signals),
        target=target(signals, min_warm=floor.min_warm, max_replicas=max_replicas),
    )


def _runtime_class(pool: RunnerPool, seen: FleetSeen) -> RuntimeClass | None:
    name = pool.spec.runtime_class_name
    return None if name is UNSET else seen.runtime_classes.get(name)


def _why(share: int, own: Ask) -> str:
    if share < own.target:
        return f"jobs need {own.load}, its target is {own.target}, the fleet has room for {share}"
    return f"jobs need {own.load}, its target is {own.target}"


def _left_alone(pool: RunnerPool) -> str:
    if pool.metadata.deletion_timestamp is not None:
        return "the pool is being deleted"
    if not pool.spec.autoscaling.enabled:
        return "autoscaling is off"
    return "autoscaling has no maxReplicas, so replicas are left alone"
