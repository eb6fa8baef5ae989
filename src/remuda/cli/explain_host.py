"""Why a host takes runners or does not. Pure: its Node, its runners and Events come in, an explanation goes out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from remuda.cli.host_changes import drain_text
from remuda.kube.names import FLEET, RUNTIME, VM
from remuda.kube.node_view import (
    NOT_READY,
    PRESSURES,
    UNSCHEDULABLE,
    starts_failing,
    unhealthy_reason,
)
from remuda.ports.api import Explanation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.cli.host_changes import OnHost
    from remuda.kube.core import Event, Node

EVENTS_MAX: Final = 5


class HostWhy(StrEnum):
    """Why a host takes runners or does not; what is not here is a reason of ``node_view``."""

    DELETED = "being_deleted"
    DRAINING = "draining"
    DRAINED = "drained"
    STARTS_FAILING = "starts_failing"
    FULL = "full"
    TAKES_RUNNERS = "takes_runners"


def explain_host(node: Node, on_host: OnHost, events: Iterable[Event] = ()) -> Explanation:
    """Say why no runner starts on a host, or that one may, by the operator's own predicates."""
    why, sentence, step = _verdict(node, on_host)
    room = node.status.allocatable.get(VM)
    slots = (f"It may have {room} runners at once",) if room else ()
    conditions = tuple(
        f"{c.type} is {c.status}: {c.message.rstrip('. ') or c.reason}"
        for c in node.status.conditions
        if c.message or c.reason
    )
    kind = f"It is of fleet {node.labels.get(FLEET, '')}, runtime {node.labels.get(RUNTIME) or 'unknown'}"
    return Explanation(
        subject=node.name,
        why=why,
        sentence=sentence,
        evidence=(
            f"Its runners: {drain_text(on_host)}",
            *slots,
            kind,
            *conditions,
            *told(events),
        ),
        next_step=step,
    )


def told(events: Iterable[Event]) -> tuple[str, ...]:
    """Return what Events say, the last few, the newest last."""
    dated = [(at, e) for e in events if (at := e.last_timestamp or e.first_timestamp)]
    newest = sorted(dated, key=lambda pair: (pair[0], pair[1].name))[-EVENTS_MAX:]
    return tuple(
        f"{at:%Y-%m-%d %H:%M:%S} UTC {e.reason}: {e.message.rstrip('. ')}" for at, e in newest
    )


def _verdict(node: Node, on_host: OnHost) -> tuple[str, str, str]:
    name, reason = node.name, unhealthy_reason(node)
    if reason == UNSCHEDULABLE:
        return _draining(node, on_host)
    if reason == NOT_READY:
        sentence = f"Host {name} takes no runners: it is not ready."
        step = "See that its agent runs and reaches the Kubernetes API: its log says more."
        return reason, sentence, step
    if reason:
        kind = next(kind for kind, short in PRESSURES.items() if short == reason)
        sentence = f"Host {name} takes no runners: it is under pressure ({kind})."
        return reason, sentence, f"Free what is short on {name}; it takes runners again by itself."
    failing = starts_failing(node)
    if failing is not None and failing.status == "True":
        sentence = f"Host {name} is avoided: runners do not start there although they do on others."
        step = "Look at its agent's log and its Events. It is tried again by itself now and then."
        return HostWhy.STARTS_FAILING, sentence, step
    room = node.status.allocatable.get(VM, "")
    if room.isdigit() and on_host.count >= int(room):
        sentence = f"Host {name} is full: each of the {room} runners that it may have is there."
        return HostWhy.FULL, sentence, "Nothing. More hosts or a larger one have more room."
    return HostWhy.TAKES_RUNNERS, f"Host {name} takes new runners.", "Nothing."


def _draining(node: Node, on_host: OnHost) -> tuple[str, str, str]:
    name = node.name
    if node.metadata.deletion_timestamp is not None:
        sentence = f"Host {name} takes no new runners: its Node is being deleted."
        return HostWhy.DELETED, sentence, "Nothing. Its agent makes a new Node if it still runs."
    back = f"Put it back in service with: remuda hosts undrain {name}."
    if on_host.count:
        sentence = f"Host {name} is being drained: it takes no new runners, and is not empty yet."
        return HostWhy.DRAINING, sentence, f"Wait for its runners to finish. {back}"
    sentence = f"Host {name} is drained: it takes no new runners, and none is left there."
    return HostWhy.DRAINED, sentence, back
