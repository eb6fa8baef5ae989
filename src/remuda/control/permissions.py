"""
What a process must be allowed to do on the API server: one verb on one resource, and a look at what is missing.

Each process has one table of its needs; the manifest in the docs is tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.kube.kinds import Kind
    from remuda.kube.meta import Resource
    from remuda.ports.kube import Kube

READ = ("get", "list", "watch")


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


def needed(
    kind: Kind[Resource], verbs: tuple[str, ...], namespace: str = "", subresource: str = ""
) -> tuple[Need, ...]:
    return tuple(Need(verb, kind, namespace, subresource) for verb in verbs)


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
