"""
What the operator must be allowed to do, as a table, and a look at what of it is missing.

The table is the only list: the manifest in the docs is tested against it, and so is what the operator asks at start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.kube.core import EVENT, LEASE, NODE, POD, RUNTIME_CLASS, SERVICE_ACCOUNT
from remuda.kube.runner_pool import RUNNER_POOL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.kube.kinds import Kind
    from remuda.kube.meta import Resource
    from remuda.pools.settings import PoolSettings
    from remuda.ports.kube import Kube

_READ = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Need:
    """One verb on one resource. The empty namespace means the whole cluster."""

    verb: str
    kind: Kind[Resource]
    namespace: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        what = f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural
        group = f".{self.kind.group}" if self.kind.group else ""
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{self.verb} {what}{group} {where}"


def needs(settings: PoolSettings) -> tuple[Need, ...]:
    """Return everything that the operator does to the API server."""
    ours = settings.namespace
    return (
        *_all(RUNNER_POOL, (*_READ, "patch"), ours),
        *_all(RUNNER_POOL, ("patch",), ours, "status"),
        *_all(POD, (*_READ, "create", "patch", "delete"), ours),
        *_all(SERVICE_ACCOUNT, (*_READ, "create", "delete"), ours),
        *_all(EVENT, ("create", "patch"), ours),
        *_all(LEASE, ("get", "create", "patch"), ours),
        *_all(NODE, _READ),
        *_all(NODE, ("patch",), subresource="status"),
        *_all(RUNTIME_CLASS, _READ),
        # Events about Nodes, which have no namespace, are kept in this one.
        *_all(EVENT, ("create", "patch"), "default"),
    )


async def missing(kube: Kube, wanted: Iterable[Need]) -> tuple[Need, ...]:
    """Return which of these we may not do. Asks the server; raises its errors."""
    # One by one: the first error ends it, and a start can wait for thirty small answers.
    lacking = [
        need
        for need in wanted
        if not await kube.may_i(
            need.verb, need.kind, namespace=need.namespace, subresource=need.subresource
        )
    ]
    return tuple(lacking)


def _all(
    kind: Kind[Resource], verbs: tuple[str, ...], namespace: str = "", subresource: str = ""
) -> tuple[Need, ...]:
    return tuple(Need(verb, kind, namespace, subresource) for verb in verbs)
