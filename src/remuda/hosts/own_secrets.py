"""
Secrets that are made for a Host: kept, read and removed only if they are this Host's own.

Their names are such as a person may have chosen before us. Whose a Secret is, its owner reference says; one of somebody
else's is neither read nor written nor removed.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import structlog

from remuda.kube.core import SECRET, Secret
from remuda.kube.host import HOST
from remuda.kube.meta import ObjectMeta, OwnerReference
from remuda.kube.patches import MergePatch
from remuda.model.errors import RemudaError
from remuda.ports.kube import AlreadyExists, Conflict, NotFound, Seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.kube.host import Host
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)


class NotOurSecret(RemudaError):
    """A Secret has the name of one of ours and is somebody else's. It is left as it is."""


async def find(kube: Kube, host: Host, name: str) -> Secret | None:
    """Return the Host's own Secret; None if there is none. Raises ``NotOurSecret`` if it is somebody else's."""
    try:
        found = await kube.get(SECRET, name, namespace=host.namespace)
    except NotFound:
        return None
    if any(owner.uid == host.uid for owner in found.metadata.owner_references):
        return found
    raise NotOurSecret(
        f"The Secret {name} is not that of Host {host.name}",
        why="it was not made for this Host (no owner reference says so), and what is kept for the Host has that name",
        fix="Give yours another name. It was left as it is",
    )


async def keep(kube: Kube, host: Host, name: str, data: Mapping[str, bytes]) -> None:
    """Make the Host's own Secret, or change it."""
    owner = OwnerReference(
        api_version=HOST.api_version, kind=HOST.name, name=host.name, uid=host.uid
    )
    metadata = ObjectMeta(name=name, namespace=host.namespace, owner_references=(owner,))
    try:
        await kube.create(SECRET, Secret(metadata=metadata, type="Opaque", data=dict(data)))
    except AlreadyExists:
        found = await find(kube, host, name)
        if found is None:
            raise  # it came and went: the next attempt looks again
        new = {key: b64encode(value).decode() for key, value in data.items()}
        patch = MergePatch(
            {"metadata": {"resourceVersion": found.resource_version}, "data": {**new}}
        )
        await kube.patch(SECRET, name, patch, namespace=host.namespace)


async def forget(kube: Kube, host: Host, name: str) -> None:
    """Remove the Host's own Secret. That there is none, or one of somebody else's, is no error."""
    try:
        found = await find(kube, host, name)
        if found is not None:
            await kube.delete(SECRET, name, namespace=host.namespace, seen=Seen(uid=found.uid))
    except NotOurSecret:
        log.info("Secret left alone", host=host.name, secret=name)
    except (NotFound, Conflict):
        log.info("Secret gone already", host=host.name, secret=name)
