"""
Decide which Node each waiting Pod goes to, or say in the scheduler's words why it goes nowhere.

Filters first (cordon, taints, node affinity, resources), then scores. Amounts are whole numbers: thousandths of a CPU,
bytes, pieces. Nothing is ever evicted to make room: a started job is never killed. What our Pods do not use is not
looked at: affinity between Pods, topology spread, host ports, volumes. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.kube.core import NodeSelectorTerm, SelectorRequirement, Taint, Toleration

NO_NODES = "no nodes available to schedule pods"
_UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
_SCORE_MAX = 100
_TAINT_WEIGHT, _AFFINITY_WEIGHT = 3, 2  # of the Kubernetes scheduler; free resources weigh 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A Pod that waits for a Node."""

    namespace: str
    name: str
    uid: str = ""
    created: str = ""
    priority: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    required: tuple[NodeSelectorTerm, ...] | None = None
    """Terms of which one must match; None asks for nothing."""
    preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A Node, and what its Pods have asked for."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    pod_count: int = 0


@dataclass(frozen=True, slots=True)
class Bind:
    ask: Ask
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    ask: Ask
    why: str


Action = Bind | Wait


def decide(asks: Iterable[Ask], places: Iterable[Place]) -> tuple[Action, ...]:
    """Place every Pod in turn; each placement is counted before the next Pod is looked at."""
    in_order = sorted(asks, key=lambda a: (-a.priority, a.created, a.namespace, a.name))
    rooms = [_Room(place) for place in sorted(places, key=lambda p: p.name)]
    return tuple(_place(ask, rooms) for ask in in_order)


class _Room:
    """A Node while Pods are being placed: what is used grows."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.used: Mapping[str, int] = place.used
        self.pod_count = place.pod_count

    def take(self, ask: Ask) -> None:
        used = dict(self.used)
        for name, amount in ask.requests.items():
            used[name] = used.get(name, 0) + amount
        self.used = used
        self.pod_count += 1


def _place(ask: Ask, rooms: Sequence[_Room]) -> Action:
    if not rooms:
        return Wait(ask, NO_NODES)
    named = _named_nodes(ask)
    if named is not None and not named:
        return Wait(ask, f"0/{len(rooms)} nodes are available: pod affinity terms conflict.")
    fitting: list[_Room] = []
    reasons: Counter[str] = Counter()
    for room in rooms:
        if against := _against(ask, room, named):
            reasons.update(against)
        else:
            fitting.append(room)
    if not fitting:
        listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        return Wait(ask, f"0/{len(rooms)} nodes are available: {listed}.")
    best = _best(ask, fitting)
    best.take(ask)
    node = best.place.name
    return Bind(ask, node, f"Successfully assigned {ask.namespace}/{ask.name} to {node}")


# --- Filters: why a Node will not do ----------------------------------------------------------------------------------


def _against(ask: Ask, room: _Room, named: frozenset[str] | None) -> list[str]:
    """Return the reasons of the first filter that refuses the Node, in the order of the Kubernetes scheduler."""
    place = room.place
    if named is not None and place.name not in named:
        return ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]
    if place.unschedulable and not _tolerates_key(ask, _UNSCHEDULABLE_TAINT, "NoSchedule"):
        return ["node(s) were unschedulable"]
    if place.taints and any(_keeps_out(t) and not _tolerates(ask, t) for t in place.taints):
        return ["node(s) had untolerated taint(s)"]
    if not _matches_affinity(ask, place):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return _short_of(ask, room)


def _named_nodes(ask: Ask) -> frozenset[str] | None:
    """Return the only Nodes that the required terms name, if every term names some."""
    if not ask.required:
        return None
    names: set[str] = set()
    for term in ask.required:
        listed = [
            frozenset(field.values)
            for field in term.match_fields
            if field.key == "metadata.name" and field.operator == "In"
        ]
        if not listed:
            return None
        names |= frozenset.intersection(*listed)
    return frozenset(names)


def _keeps_out(taint: Taint) -> bool:
    return taint.effect in ("NoSchedule", "NoExecute")


def _tolerates_key(ask: Ask, key: str, effect: str) -> bool:
    return any(_tolerated_by(t, key, "", effect) for t in ask.tolerations)


def _tolerates(ask: Ask, taint: Taint) -> bool:
    return any(_tolerated_by(t, taint.key, taint.value, taint.effect) for t in ask.tolerations)


def _tolerated_by(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    if toleration.effect and toleration.effect != effect:
        return False
    if toleration.key and toleration.key != key:
        return False
    match toleration.operator or "Equal":
        case "Equal":
            return toleration.value == value
        case "Exists":
            return True
        case _:
            return False


def _matches_affinity(ask: Ask, place: Place) -> bool:
    for key, value in ask.node_selector.items():
        if place.labels.get(key) != value:
            return False
    return ask.required is None or any(_matches_term(term, place) for term in ask.required)


def _matches_term(term: NodeSelectorTerm, place: Place) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # an empty term selects nothing
    names = {"metadata.name": place.name}
    return all(_matches(r, place.labels) for r in term.match_expressions) and all(
        _matches(r, names) for r in term.match_fields
    )


def _matches(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    found = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return found in requirement.values
        case "NotIn":
            return found not in requirement.values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            return found is not None and _compares(found, requirement)
        case _:
            return False


def _compares(found: str, requirement: SelectorRequirement) -> bool:
    try:
        (bound,) = requirement.values
        more, less = int(found) > int(bound), int(found) < int(bound)
    except ValueError:
        return False  # what is no number is neither more nor less
    return more if requirement.operator == "Gt" else less


def _short_of(ask: Ask, room: _Room) -> list[str]:
    has, used = room.place.allocatable, room.used
    short = ["Too many pods"] if room.pod_count + 1 > has.get("pods", 0) else []
    for name, amount in ask.requests.items():
        if amount > 0 and amount > has.get(name, 0) - used.get(name, 0):
            short.append(f"Insufficient {name}")
    return short


# --- Scores: which of the Nodes that would do -------------------------------------------------------------------------


def _best(ask: Ask, rooms: Sequence[_Room]) -> _Room:
    if len(rooms) == 1:
        return rooms[0]
    unwanted = [_unwanted(ask, room.place) for room in rooms]
    liked = [_liked(ask, room.place) for room in rooms] if ask.preferred else [0] * len(rooms)
    worst, best = max(unwanted), max(liked)
    weighed = sorted({"cpu", "memory", *ask.requests})
    scores = [
        _TAINT_WEIGHT * (_SCORE_MAX - _share(bad, worst))
        + _AFFINITY_WEIGHT * _share(good, best)
        + _free_share(ask, room, weighed)
        for room, bad, good in zip(rooms, unwanted, liked, strict=True)
    ]
    # Of equals the first by name: the same world must always give the same answer.
    return rooms[scores.index(max(scores))]


def _share(value: int, highest: int) -> int:
    return value * _SCORE_MAX // highest if highest else 0


def _unwanted(ask: Ask, place: Place) -> int:
    if not place.taints:
        return 0
    return sum(t.effect == "PreferNoSchedule" and not _tolerates(ask, t) for t in place.taints)


def _liked(ask: Ask, place: Place) -> int:
    return sum(weight for weight, term in ask.preferred if _matches_term(term, place))


def _free_share(ask: Ask, room: _Room, resources: Sequence[str]) -> int:
    """Return how much would stay free, in percent, averaged over CPU, memory and what the Pod asks for."""
    has, used, asked = room.place.allocatable, room.used, ask.requests
    total = count = 0
    for name in resources:
        capacity = has.get(name, 0)
        if capacity > 0:
            free = capacity - used.get(name, 0) - asked.get(name, 0)
            total += max(0, free) * _SCORE_MAX // capacity
            count += 1
    return total // count if count else 0
