"""How objects are shown to a client: whole, metadata only, or as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.standalone import tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.ports.clock import Clock
    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.objects import Obj
    from remuda.standalone.requests import MediaType
    from remuda.standalone.watch import Shape

_META_V1 = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Shaper:
    """Shows objects as the Accept header asks; ages in tables are told by the clock."""

    clock: Clock

    def one(
        self, kind: ResourceKind, obj: Obj, shown_as: MediaType, query: Mapping[str, str]
    ) -> Obj:
        if not shown_as.as_:
            return obj
        if shown_as.as_ == "Table":
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return self._table(kind, [obj], meta, query)
        return _partial(obj)

    def many(
        self, kind: ResourceKind, listed: Obj, shown_as: MediaType, query: Mapping[str, str]
    ) -> Obj:
        if not shown_as.as_:
            return listed
        if shown_as.as_ == "Table":
            return self._table(kind, listed["items"], listed["metadata"], query)
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": _META_V1,
            "metadata": listed["metadata"],
            "items": [_partial(obj) for obj in listed["items"]],
        }

    def of_events(
        self, kind: ResourceKind, shown_as: MediaType, query: Mapping[str, str]
    ) -> Shape | None:
        """Return how a watch shows objects; None for whole, which it then encodes once for all."""
        if not shown_as.as_:
            return None
        return lambda obj: self.one(kind, obj, shown_as, query)

    def _table(
        self, kind: ResourceKind, objects: list[Obj], meta: Obj, query: Mapping[str, str]
    ) -> Obj:
        include = query.get("includeObject") or "Metadata"
        return tables.table(kind, objects, self.clock.now(), list_meta=meta, include=include)


def _partial(obj: Obj) -> Obj:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META_V1, "metadata": obj["metadata"]}
