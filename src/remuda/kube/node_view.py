"""From a Node to what decisions ask of it. Pure. Whether a host may take or keep runners is said here alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.kube.names import STARTS_FAILING

if TYPE_CHECKING:
    from remuda.kube.core import Node
    from remuda.kube.meta import Condition

PRESSURES: Final = {
    "MemoryPressure": "memory_pressure",
    "DiskPressure": "disk_pressure",
    "PIDPressure": "pid_pressure",
}
NOT_READY: Final = "not_ready"
UNSCHEDULABLE: Final = "unschedulable"
UNHEALTHY_REASONS: Final = (UNSCHEDULABLE, *PRESSURES.values(), NOT_READY)


def is_draining(node: Node) -> bool:
    """Say whether a host is on its way out: it loses its idle runners and keeps the busy ones."""
    return node.spec.unschedulable or node.metadata.deletion_timestamp is not None


def unhealthy_reason(node: Node) -> str:
    """Say why no runner should start there now; empty if one may. A Node that does not say Ready is not."""
    if is_draining(node):
        return UNSCHEDULABLE
    for kind, reason in PRESSURES.items():
        if _status(node, kind) == "True":
            return reason
    return "" if _status(node, "Ready") == "True" else NOT_READY


def starts_failing(node: Node) -> Condition | None:
    """Return the condition that says whether runners fail to start there, if it was ever written."""
    return next((c for c in node.status.conditions if c.type == STARTS_FAILING), None)


def _status(node: Node, kind: str) -> str:
    return next((c.status for c in node.status.conditions if c.type == kind), "")
