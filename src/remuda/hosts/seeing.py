"""From a Host and its Node to what decisions ask of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.hosts.decide.lifecycle import NodeState, Phase, Seen
from remuda.hosts.status import KEY_TRUSTED, condition
from remuda.kube.names import HOST_DRAIN, PAUSED
from remuda.kube.times import parse_time

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.kube.core import Node
    from remuda.kube.host import Host


def phase_of(host: Host) -> Phase:
    """Return the phase that a status says. One that we do not know is from another version of ours: begin anew."""
    try:
        return Phase(host.status.phase)
    except ValueError:
        return Phase.PENDING


def seen_of(
    host: Host,
    node: Node | None,
    *,
    wanted_hash: str,
    missing_since: datetime | None,
    now: datetime,
    vm_pods: int = 0,
) -> Seen:
    """Return one look at a Host."""
    status = host.status
    trusted = condition(status, KEY_TRUSTED)
    rented = host.spec.provider.scaleway
    state, since = _state(node)
    renew_at = status.identity_renew_at
    return Seen(
        phase=phase_of(host),
        deleting=host.metadata.deletion_timestamp is not None,
        paused=host.metadata.annotations.get(PAUSED) == "true",
        rented=bool(rented),
        returnable=bool(rented and rented.adopt_prefix),
        has_machine=not rented or bool(status.machine_id),
        wanted_hash=wanted_hash,
        config_hash=status.config_hash,
        converged_at=status.converged_at,
        failed_hash=status.failed_config_hash,
        failed_at=status.failed_at,
        attempts=status.attempts or 0,
        rebooted=status.rebooted,
        reached=wanted_hash in (status.reached_config_hash, status.config_hash),
        changed=bool(status.config_hash) and status.observed_generation != host.metadata.generation,
        key_refused=trusted is not None and trusted.status == "False",
        identity_due=renew_at is not None and renew_at <= now,
        node=state,
        node_since=missing_since if state is NodeState.MISSING else since,
        cordoned=node is not None and node.spec.unschedulable,
        cordoned_at=cordoned_at(node),
        vm_pods=vm_pods,
    )


def cordoned_at(node: Node | None) -> datetime | None:
    """Return since when we keep a Node from taking Pods; None if we do not."""
    if node is None or not node.spec.unschedulable:
        return None
    try:
        return parse_time(node.metadata.annotations.get(HOST_DRAIN, ""))
    except ValueError:
        return None


def _state(node: Node | None) -> tuple[NodeState, datetime | None]:
    if node is None:
        return NodeState.MISSING, None
    ready = next((c for c in node.status.conditions if c.type == "Ready"), None)
    if ready is None or ready.status != "True":
        return NodeState.NOT_READY, None if ready is None else ready.last_transition_time
    return NodeState.READY, ready.last_transition_time or node.metadata.creation_timestamp
