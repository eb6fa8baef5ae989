"""
Whether the agent is who it should be: ``system:node:<its Node>``, and nothing more.

The agent is bound to no Role. What it may do is what the Node authorizer lets a node do, which depends on the objects
themselves, so a table of verbs would say little; two questions tell whether the name is right.
"""

from __future__ import annotations

from remuda.kube.core import NODE, POD
from remuda.model.errors import RemudaError, Retry
from remuda.ports.kube import Kube, NotFound, Query, Refused


class WrongIdentity(RemudaError):
    """The credential is not this node's. Only a person can give the right one."""

    retry = Retry.NEVER


async def check_identity(kube: Kube, node: str) -> None:
    """Ask for our own Node and our own Pods. Raises WrongIdentity, or the API server's other errors."""
    try:
        await kube.get(NODE, node)
    except NotFound:
        pass
    except Refused as error:
        raise _wrong(node, error) from None
    try:
        await kube.list(POD, Query(fields=f"spec.nodeName={node}"))
    except Refused as error:
        raise _wrong(node, error) from None


def _wrong(node: str, error: Refused) -> WrongIdentity:
    return WrongIdentity(
        f"The agent cannot be the node {node}",
        why=f"the API server refused it ({error.why})",
        fix=f"Give it a certificate of the user system:node:{node} in the group system:nodes",
    )
