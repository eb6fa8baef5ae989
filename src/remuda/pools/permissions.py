"""
What the operator must be allowed to do, as a table.

The table is the only list: the manifest in the docs is tested against it, and so is what the operator asks at start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.control.permissions import READ, needed
from remuda.control.preflight import Rights
from remuda.kube.core import EVENT, LEASE, NODE, POD, RUNTIME_CLASS, SERVICE_ACCOUNT
from remuda.kube.runner_pool import RUNNER_POOL

if TYPE_CHECKING:
    from remuda.pools.settings import PoolSettings


def rights(settings: PoolSettings) -> Rights:
    """Return everything that the operator does to the API server."""
    ours = settings.namespace
    return Rights(
        who="The operator",
        namespace=ours,
        manifest="docs/howto/operator-rbac.yaml",
        needs=(
            *needed(RUNNER_POOL, (*READ, "patch"), ours),
            *needed(RUNNER_POOL, ("patch",), ours, "status"),
            *needed(POD, (*READ, "create", "patch", "delete"), ours),
            *needed(SERVICE_ACCOUNT, (*READ, "create", "delete"), ours),
            *needed(EVENT, ("create", "patch"), ours),
            *needed(LEASE, ("get", "create", "patch"), ours),
            *needed(NODE, READ),
            *needed(NODE, ("patch",), subresource="status"),
            *needed(RUNTIME_CLASS, READ),
            # Events about Nodes, which have no namespace, are kept in this one.
            *needed(EVENT, ("create", "patch"), "default"),
        ),
    )
