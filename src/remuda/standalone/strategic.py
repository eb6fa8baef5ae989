"""
Strategic merge patches, as kubectl sends them for built-in kinds: lists of a known key merge by that key.

The result shares what the patch did not touch; nothing given is changed. Custom resources have no such patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda.standalone.patches import PatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.objects import Obj

_PRIMITIVE = ""
"""In place of a merge key: a list of texts that merges as a set."""

_DIRECTIVE, _RETAIN = "$patch", "$retainKeys"
_ORDER, _DROP = "$setElementOrder/", "$deleteFromPrimitiveList/"

_METADATA = {"metadata.ownerReferences": "uid", "metadata.finalizers": _PRIMITIVE}
_CONTAINER = {
    "ports": "containerPort",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_POD_SPEC = {
    "volumes": "name",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
}
_POD = (
    {f"spec.{field}": key for field, key in _POD_SPEC.items()}
    | {
        f"spec.{containers}.{field}": key
        for containers in ("containers", "initContainers", "ephemeralContainers")
        for field, key in _CONTAINER.items()
    }
    | {
        "status.conditions": "type",
        "status.podIPs": "ip",
        "status.hostIPs": "ip",
        "status.resourceClaimStatuses": "name",
    }
)
_MERGE_KEYS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("", "Pod"): _METADATA | _POD,
    ("", "Node"): _METADATA
    | {"spec.podCIDRs": _PRIMITIVE, "status.conditions": "type", "status.addresses": "type"},
    ("", "ServiceAccount"): _METADATA | {"secrets": "name", "imagePullSecrets": "name"},
    ("", "Namespace"): _METADATA | {"status.conditions": "type"},
}


def strategic_merge(old: Obj, patch: Obj, kind: ResourceKind) -> Obj:
    """Apply a strategic merge patch; PatchError if it cannot be understood."""
    merger = _Merger(_MERGE_KEYS.get((kind.group, kind.kind), _METADATA))
    return merger.objects(old, patch, "")


@dataclass(frozen=True, slots=True)
class _Merger:
    keys: Mapping[str, str]

    def objects(self, old: Obj, patch: Obj, path: str) -> Obj:
        directive = patch.get(_DIRECTIVE, "merge")
        if directive in {"replace", "delete"}:  # a deleted object is a replaced one without keys
            return {k: v for k, v in patch.items() if k != _DIRECTIVE and directive == "replace"}
        if directive != "merge":
            raise PatchError(f"unknown patch type found: {directive} in {path or 'the patch'}")
        result = _retained(old, patch.get(_RETAIN))
        for key, value in patch.items():
            if not key.startswith("$"):
                self._field(result, key, value, f"{path}.{key}" if path else key)
        for key in [key for key in patch if key.startswith(_DROP)]:
            field = key.removeprefix(_DROP)
            result[field] = [one for one in result.get(field) or () if one not in patch[key]]
        for key in [key for key in patch if key.startswith(_ORDER)]:
            self._reorder(result, old, key.removeprefix(_ORDER), patch[key], path)
        return result

    def _field(self, result: Obj, key: str, value: Any, path: str) -> None:  # noqa: ANN401 - JSON
        if value is None or (isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"):
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = self.objects(before if isinstance(before, dict) else {}, value, path)
        elif isinstance(value, list) and path in self.keys:
            result[key] = self._lists(result.get(key) or [], value, path)
        else:
            result[key] = value

    def _lists(self, old: list[Any], patch: list[Any], path: str) -> list[Any]:
        key = self.keys[path]
        if key == _PRIMITIVE:
            return [*old, *(one for one in patch if one not in old)]
        items = [_item(one, path) for one in patch]
        if any(one.get(_DIRECTIVE) == "replace" for one in items):
            return [one for one in items if _DIRECTIVE not in one]
        result = list(old)
        for item in items:
            self._item(result, item, key, path)
        return result

    def _item(self, result: list[Any], item: Obj, key: str, path: str) -> None:
        """Merge one element of a keyed list into the list, add it, or take it away."""
        if key not in item:
            raise PatchError(f"map: {item} does not contain declared merge key: {key}")
        at = next((n for n, one in enumerate(result) if one.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(self.objects({}, item, path))
        else:
            result[at] = self.objects(result[at], item, path)

    def _reorder(self, result: Obj, old: Obj, field: str, order: list[Any], path: str) -> None:
        where = f"{path}.{field}" if path else field
        if where not in self.keys or not result.get(field):
            return
        key = self.keys[where]

        def identity(one: Any) -> Any:  # noqa: ANN401 - JSON
            return one if key == _PRIMITIVE or not isinstance(one, dict) else one.get(key)

        wanted = [identity(one) for one in order]
        server = [identity(one) for one in old.get(field) or ()]
        result[field] = _ordered(result[field], identity, wanted, server)


def _item(item: Any, path: str) -> Obj:  # noqa: ANN401 - JSON
    if not isinstance(item, dict):
        raise PatchError(f"the elements of {path} must be objects")
    return item


def _retained(old: Obj, retain: list[str] | None) -> Obj:
    return dict(old) if retain is None else {key: old[key] for key in old if key in retain}


def _ordered(
    items: list[Any],
    identity: Callable[[Any], Any],
    wanted: list[Any],
    server: list[Any],
) -> list[Any]:
    """Put the elements the client knows in its order; those only the server has stay before what they preceded."""
    known = sorted(
        (i for i in items if identity(i) in wanted), key=lambda i: wanted.index(identity(i))
    )
    foreign = [i for i in items if identity(i) not in wanted]
    result: list[Any] = []
    for item in known:
        while foreign and _precedes(identity(foreign[0]), identity(item), server):
            result.append(foreign.pop(0))
        result.append(item)
    return [*result, *foreign]


def _precedes(one: Any, other: Any, order: list[Any]) -> bool:  # noqa: ANN401 - JSON
    return one in order and other in order and order.index(one) < order.index(other)
