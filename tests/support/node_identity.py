"""A host's identity on the real control plane: ``system:node:<name>``, under Node authorizer and NodeRestriction."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.adapters.kube_client import HttpWire, kubeconfig
from remuda.adapters.system import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.control_plane import RealControlPlane


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What an agent is started with."""

    node: str
    kubeconfig: Path
    client_ca: Path
    """The authority of the API server's kubelet client certificate."""


def node_identity(plane: RealControlPlane, node: str) -> NodeIdentity:
    """Return the credential of a node. Nothing is made for it on the server: a node's name is all that it needs."""
    file = plane.kubeconfig(f"system:node:{node}", ("system:nodes",))
    return NodeIdentity(node, file, plane.access.ca_file)


@asynccontextmanager
async def wire_of(file: Path) -> AsyncIterator[HttpWire]:
    """Open a wire as the user of a kubeconfig."""
    wire = HttpWire(kubeconfig.load(file, clock=SystemClock()))
    try:
        yield wire
    finally:
        await wire.close()
