"""
What the host operator must be allowed to do, as a table.

The table is the only list: the manifest in the docs is tested against it, and so is what the operator asks at start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.control.permissions import READ, needed
from remuda.control.preflight import Rights
from remuda.kube.certificates import SIGNING_REQUEST
from remuda.kube.core import EVENT, LEASE, NODE, POD, SECRET
from remuda.kube.host import HOST

if TYPE_CHECKING:
    from remuda.hosts.settings import HostSettings


def rights(settings: HostSettings, *, signs: bool = True) -> Rights:
    """Return everything that the operator does to the API server. ``signs``: it asks that for certificates."""
    ours = settings.namespace
    requests = (
        *needed(SIGNING_REQUEST, ("get", "create", "delete")),
        *needed(SIGNING_REQUEST, ("patch",), subresource="approval"),
    )
    return Rights(
        who="The host operator",
        namespace=ours,
        manifest="docs/howto/hosts-rbac.yaml",
        needs=(
            *needed(HOST, (*READ, "patch"), ours),
            *needed(HOST, ("patch",), ours, "status"),
            *needed(SECRET, ("get", "create", "patch", "delete"), ours),
            *needed(EVENT, ("create", "patch"), ours),
            *needed(LEASE, ("get", "create", "patch"), ours),
            *needed(NODE, (*READ, "patch", "delete")),
            *needed(POD, ("list",)),
            *(requests if signs else ()),
        ),
        kind=HOST,
    )
