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
    """Decide for one pool. Whoever needs all of them asks ``wanted_by_pool``, which shares out each fleet once."""
    pool = next((p for p in seen.pools if p.name == name), None)
    if pool is None:
        return Wanted(replicas=None, why="the pool is not there")
    if not is_autoscaled(pool):
        return Wanted(replicas=None, why=_left_alone(pool))
    return _wanted_in(group_of(pool, seen.pools), seen, now)[name]


def wanted_by_pool(seen: FleetSeen, now: datetime) -> dict[str, Wanted]:
    """Decide for every pool."""
    decided: dict[str, Wanted] = {}
    for pool in sorted(seen.pools, key=lambda p: p.name):
        if not is_autoscaled(pool):
            decided[pool.name] = Wanted(replicas=None, why=_left_alone(pool))
        elif pool.name not in decided:
            decided |= _wanted_in(group_of(pool, seen.pools), seen, now)
    return decided


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


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What holds for all pools that share hosts."""

    why: str = ""
    """Why there are no shares; empty if there are."""
    hold: bool = False
    shares: Mapping[str, int] = field(default_factory=dict)


def _wanted_in(group: list[RunnerPool], seen: FleetSeen, now: datetime) -> dict[str, Wanted]:
    """Decide for pools that share hosts."""
    floors = {p.name: min_warm_at(p.spec.autoscaling, now) for p in group}
    asks = {p.name: _ask(p, floors[p.name], seen) for p in group}
    verdict = _verdict(group, asks, seen)
    return {name: _one(asks[name], floor, verdict) for name, floor in floors.items()}


def _verdict(group: list[RunnerPool], asks: Mapping[str, Ask | None], seen: FleetSeen) -> _Verdict:
    for pool in group:
        if _cost(pool, seen) is None:
            return _Verdict(f"what a runner of {pool.name} takes is unknown", hold=True)
    for name, ask in asks.items():
        if ask is None:
            return _Verdict(f"the demand of {name} is unknown")
    hosts = fleet_room(group[0], seen)
    if hosts is None:
        return _Verdict("the hosts are unknown")
    if hosts.room.free == 0:
        return _Verdict("no host of the fleet is healthy")
    return _Verdict(shares=allocate((ask for ask in asks.values() if ask), hosts.room))


def _one(ask: Ask | None, floor: FloorNow, verdict: _Verdict) -> Wanted:
    if ask is None:
        return Wanted(replicas=None, why="its demand is unknown", faults=floor.faults)
    replicas, why = _replicas(ask, verdict)
    return Wanted(
        replicas=replicas,
        why=why,
        load=ask.load,
        floor=ask.floor,
        target=ask.target,
        faults=floor.faults,
    )


def _replicas(ask: Ask, verdict: _Verdict) -> tuple[int | None, str]:
    if verdict.hold:
        return None, verdict.why
    needs = f"jobs need {ask.load}, its target is {ask.target}"
    if verdict.why:
        return ask.target, f"{needs}; the fleet is not shared out: {verdict.why}"
    share = verdict.shares[ask.pool]
    return share, needs if share >= ask.target else f"{needs}, the fleet has room for {share}"


def _ask(pool: RunnerPool, floor: FloorNow, seen: FleetSeen) -> Ask | None:
    """Return what a pool would like; None if its demand is unknown."""
    signals, max_replicas = seen.signals.get(pool.name), pool.spec.autoscaling.max_replicas
    assert max_replicas is not UNSET
    if signals is None:
        return None
    return Ask(
        pool=pool.name,
        cost=_cost(pool, seen) or 1,  # an unknown cost is looked at before anything is shared out
        floor=floor.min_warm,
        load=load(signals),
        target=target(signals, min_warm=floor.min_warm, max_replicas=max_replicas),
    )


def _cost(pool: RunnerPool, seen: FleetSeen) -> int | None:
    name = pool.spec.runtime_class_name
    return cost_of(pool, None if name is UNSET else seen.runtime_classes.get(name))


def _left_alone(pool: RunnerPool) -> str:
    if pool.metadata.deletion_timestamp is not None:
        return "the pool is being deleted"
    if not pool.spec.autoscaling.enabled:
        return "autoscaling is off"
    return "autoscaling has no maxReplicas, so replicas are left alone"
