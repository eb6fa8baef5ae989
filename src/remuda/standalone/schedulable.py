"""
Read Pods and Nodes as far as scheduling is concerned: from JSON to what ``decide.scheduling`` works on.

A Pod that cannot be read is not guessed at; the error says what is wrong with it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from remuda.kube.core import Affinity, NodeSelectorTerm, Taint, Toleration
from remuda.kube.meta import Part
from remuda.kube.quantity import Quantity, parse_quantity
from remuda.model.errors import BadInput
from remuda.standalone.decide.scheduling import Ask, Place
from remuda.standalone.objects import Obj, name_of, namespace_of, uid_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEDULER_NAME = "default-scheduler"

T = TypeVar("T")
Amounts = dict[str, int]
"""By resource: thousandths of a CPU, bytes, pieces."""


class _Resources(Part, frozen=True):
    requests: dict[str, str | int | float] = {}  # noqa: RUF012 - msgspec copies it for each new struct


class _Container(Part, frozen=True):
    resources: _Resources = _Resources()
    restart_policy: str = ""


class _PodSpec(Part, frozen=True):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    overhead: dict[str, str | int | float] = {}  # noqa: RUF012 - likewise
    node_selector: dict[str, str] = {}  # noqa: RUF012 - likewise
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0


def waits_for_node(pod: Obj) -> bool:
    """Tell whether this scheduler has to find a Node for a Pod."""
    spec, meta = pod["spec"], pod["metadata"]
    return (
        not spec.get("nodeName")
        and spec.get("schedulerName", SCHEDULER_NAME) == SCHEDULER_NAME
        and "deletionTimestamp" not in meta
        and not spec.get("schedulingGates")
        and not is_over(pod)
    )


def is_over(pod: Obj) -> bool:
    """Tell whether a Pod has ended for good: it then uses nothing any more."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def read_ask(pod: Obj) -> Ask:
    """Read a Pod that waits. Raises BadInput if it makes no sense."""
    spec = _spec(pod)
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    return Ask(
        namespace=namespace_of(pod),
        name=name_of(pod),
        uid=uid_of(pod),
        created=pod["metadata"].get("creationTimestamp", ""),
        priority=spec.priority,
        requests=_requests(spec),
        node_selector=spec.node_selector,
        required=required.node_selector_terms if required else None,
        preferred=tuple(
            (term.weight, term.preference) for term in preferred if not _is_empty(term.preference)
        ),
        tolerations=spec.tolerations,
    )


def read_requests(pod: Obj) -> Amounts:
    """Read what a Pod takes of its Node. Raises BadInput if it makes no sense."""
    return _requests(_spec(pod))


def read_place(node: Obj) -> Place:
    """Read an empty Node. Raises BadInput if it makes no sense."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return Place(
        name=name_of(node),
        labels=node["metadata"].get("labels") or {},
        taints=_convert(spec.get("taints") or [], tuple[Taint, ...], "taints"),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=_amounts(status.get("allocatable") or {}),
    )


def filled(place: Place, pods: Iterable[Mapping[str, int]]) -> Place:
    """Return a Node with the amounts that each of its Pods takes."""
    used: Amounts = {}
    count = 0
    for amounts in pods:
        count += 1
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + amount
    return replace(place, used=used, pod_count=count)


def _spec(pod: Obj) -> _PodSpec:
    # The server keeps fields that were sent as null; to us they are not there.
    spec = {key: value for key, value in pod["spec"].items() if value is not None}
    return _convert(spec, _PodSpec, "spec")


def _convert(value: object, kind: type[T], what: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"The {what} cannot be read", why=str(error), fix="Correct the object"
        ) from None


def _is_empty(term: NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


def _requests(spec: _PodSpec) -> Amounts:
    """
    Add up what a Pod needs at its worst moment, as Kubernetes does.

    Init containers run one after the other, before the others but beside the sidecars (init containers that restart
    always) that were started before them.
    """
    total: Counter[str] = Counter()
    for container in spec.containers:
        total.update(_amounts(container.resources.requests))
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for container in spec.init_containers:
        amounts = Counter(_amounts(container.resources.requests))
        if container.restart_policy == "Always":
            sidecars.update(amounts)
            peak |= sidecars
        else:
            peak |= amounts + sidecars
    total.update(sidecars)
    total |= peak
    total.update(_amounts(spec.overhead))
    return dict(total)


def _amounts(quantities: Mapping[str, str | int | float]) -> Amounts:
    return {name: _amount(name, parse_quantity(str(text))) for name, text in quantities.items()}


def _amount(name: str, quantity: Quantity) -> int:
    return quantity.milli if name == "cpu" else quantity.ceil()
