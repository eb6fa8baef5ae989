"""
Decide what a Node's silence and its conditions mean: which conditions become Unknown, and which taints it carries.

Nothing here evicts. A real cluster would, five minutes after the ``NoExecute`` taint; this one only keeps new Pods
away, because a host that we cannot hear may well be running a job, and a started job is never killed. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from remuda.kube.core import Taint
from remuda.kube.meta import Condition

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.kube.core import Node

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_HEARD_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""What only the Node itself can know, and nobody knows once it is silent."""

_TAINT_OF = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_OURS_NO_SCHEDULE = frozenset({*_TAINT_OF.values(), _UNSCHEDULABLE})
_OURS_NO_EXECUTE = frozenset({NOT_READY, UNREACHABLE})


@dataclass(frozen=True, slots=True)
class HealthRules:
    """How long a Node may be silent."""

    silence_max: timedelta = timedelta(seconds=40)
    """Four missed renewals of its Lease at the usual ten seconds."""

    startup_max: timedelta = timedelta(seconds=60)
    """The same for a Node that has never said how it is."""


@dataclass(frozen=True, slots=True)
class MarkUnknown:
    conditions: tuple[Condition, ...]
    """All of the Node's conditions, as they should be."""
    why: str


@dataclass(frozen=True, slots=True)
class SetTaints:
    taints: tuple[Taint, ...]
    """All of the Node's taints, as they should be."""
    why: str


Action = MarkUnknown | SetTaints


@dataclass(frozen=True, slots=True)
class Decision:
    """``look_again_after`` is when a Node that stays silent from now on will have been silent for too long."""

    actions: tuple[Action, ...] = ()
    look_again_after: timedelta | None = None


def decide(node: Node, silent_for: timedelta, now: datetime, rules: HealthRules) -> Decision:
    """Judge one Node. ``silent_for`` is how long *we* have not seen a sign of life: the Node's clock may be wrong."""
    conditions = {condition.type: condition for condition in node.status.conditions}
    ready = conditions.get("Ready")
    left = (rules.startup_max if ready is None else rules.silence_max) - silent_for
    actions: list[Action] = []
    if left < timedelta(0):
        unknown = _unheard(node, conditions, now)
        if unknown != node.status.conditions:
            why = f"Kubelet stopped posting node status: no sign of life for {silent_for.total_seconds():.0f} s"
            actions.append(MarkUnknown(unknown, why))
        conditions = {condition.type: condition for condition in unknown}
    taints = _taints(node, conditions, now)
    if taints != node.spec.taints:
        actions.append(SetTaints(taints, why=_why_taints(conditions)))
    # A silent Node is looked at again when it speaks; until then there is no moment to wait for.
    return Decision(tuple(actions), left if left >= timedelta(0) else None)


def _unheard(node: Node, conditions: dict[str, Condition], now: datetime) -> tuple[Condition, ...]:
    never = [
        Condition(
            type=wanted,
            status="Unknown",
            reason="NodeStatusNeverUpdated",
            message="Kubelet never posted node status.",
            last_heartbeat_time=node.metadata.creation_timestamp,
            last_transition_time=now,
        )
        for wanted in _HEARD_CONDITIONS
        if wanted not in conditions
    ]
    return (*(_unknown(condition, now) for condition in node.status.conditions), *never)


def _unknown(condition: Condition, now: datetime) -> Condition:
    if condition.type not in _HEARD_CONDITIONS or condition.status == "Unknown":
        return condition
    return msgspec.structs.replace(
        condition,
        status="Unknown",
        reason="NodeStatusUnknown",
        message="Kubelet stopped posting node status.",
        last_transition_time=now,
    )


def _taints(node: Node, conditions: dict[str, Condition], now: datetime) -> tuple[Taint, ...]:
    wanted = [
        (key, "NoSchedule")
        for condition in conditions.values()
        if (key := _TAINT_OF.get((condition.type, condition.status)))
    ]
    if node.spec.unschedulable:
        wanted.append((_UNSCHEDULABLE, "NoSchedule"))
    wanted += [(key, "NoExecute") for key, _ in wanted if key in _OURS_NO_EXECUTE]
    # What others put on the Node stays, and so does the order: a taint that is right is not written again.
    kept = [t for t in node.spec.taints if not _is_ours(t) or (t.key, t.effect) in wanted]
    present = {(taint.key, taint.effect) for taint in kept}
    new = [
        Taint(key=key, effect=effect, time_added=now)
        for key, effect in sorted(wanted)
        if (key, effect) not in present
    ]
    return (*kept, *new)


def _is_ours(taint: Taint) -> bool:
    if taint.effect == "NoSchedule":
        return taint.key in _OURS_NO_SCHEDULE
    return taint.effect == "NoExecute" and taint.key in _OURS_NO_EXECUTE


def _why_taints(conditions: dict[str, Condition]) -> str:
    ready = conditions.get("Ready")
    return f"the Node's Ready condition is {ready.status if ready else 'not set'}"
