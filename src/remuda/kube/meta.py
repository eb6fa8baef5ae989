"""What every Kubernetes object carries, in the fields that we read or write."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import Annotated, Final, TypeVar

import msgspec

V = TypeVar("V")

SHARED: Final = "shared"
Shared = Annotated[V, SHARED]
"""A field whose value repeats across objects (the containers of a pool's Pods): decoded once, then shared."""


class Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """
    A piece of a resource. Unset fields are not written; an explicit 0 or "" of an UNSET field is.

    Parts may be shared between objects, so what they hold is never changed: maps are declared as ``Mapping``, and mypy
    refuses to write into one. They are trees of plain values, so the cyclic garbage collector need not look at them
    (``gc=False``): with 10,000 Pods it would, for long.
    """


class OwnerReference(Part, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Part, frozen=True):
    name: str = ""
    generate_name: Shared[str] = ""
    namespace: Shared[str] = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Shared[datetime | None] = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Shared[Mapping[str, str]] = {}
    annotations: Shared[Mapping[str, str]] = {}
    finalizers: Shared[tuple[str, ...]] = ()
    owner_references: Shared[tuple[OwnerReference, ...]] = ()


class Resource(Part, frozen=True):
    """A whole object. ``apiVersion`` and ``kind`` are its Kind's business and not held per object."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        return self.metadata.resource_version

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels


class Condition(Part, frozen=True):
    """A condition of a Pod, a Node or one of our own resources (the union of their fields)."""

    type: Shared[str]
    status: Shared[str]
    reason: Shared[str] = ""
    message: Shared[str] = ""
    observed_generation: int | None = None
    last_transition_time: Shared[datetime | None] = None
    last_heartbeat_time: Shared[datetime | None] = None
