"""One CRD version's schema: compile it once, then prune, default and validate many objects. Pure."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from remuda.standalone import jsonpaths
from remuda.standalone.errors import Cause
from remuda.standalone.schema import nodes, shape
from remuda.standalone.schema.checks import ABSENT, INVALID, check, check_unique, show
from remuda.standalone.schema.faults import SchemaFault
from remuda.standalone.schema.rules import ask_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.standalone.kinds import ScalePaths
    from remuda.standalone.objects import Obj

_OWN: Final = ("apiVersion", "kind", "metadata")
"""At the root these belong to the API server and are neither pruned nor defaulted."""

_COUNT_MAX: Final = 2**31 - 1
_GO_TYPES: Final[dict[type, str]] = {str: "string", bool: "bool", float: "float64"}

_NOT_ASKED: Final = Cause(
    "<nil>",
    INVALID,
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation",
)
_NOT_BLOCKING: Final = (INVALID, "FieldValueDuplicate")
"""Rules are asked beside these faults. After any other, such as a wrong type, their answers would mean nothing."""


class StructuralSchema:
    """A compiled OpenAPI v3 schema of whole objects. Raises SchemaFault if it, or one of its rules, cannot be used."""

    def __init__(
        self,
        schema: dict[str, Any],
        path: str = "openAPIV3Schema",
        *,
        scale: ScalePaths | None = None,
    ) -> None:
        self._counts = () if scale is None else (scale.spec_replicas, scale.status_replicas)
        self._root = _compiled(json.dumps(schema), path)

    def prune(self, obj: Obj) -> Obj:
        """Drop what the schema does not know."""
        return self._without_own(obj, shape.prune)

    def default(self, obj: Obj) -> Obj:
        """Fill in what is missing and has a default."""
        return self._without_own(obj, shape.default)

    def validate(self, obj: Obj, old: Obj | None = None) -> tuple[Cause, ...]:
        """Say what is wrong with an object; with ``old``, also with the change, and nothing of what did not change."""
        before = ABSENT if old is None else old
        found = [*check(self._root, obj, "", before)]
        found += [cause for path in self._counts for cause in _check_count(path, obj)]
        # As the API server: one old duplicate anywhere excuses them all, or an object could not be mended in steps.
        if old is None or not any(check_unique(self._root, old, "")):
            found += check_unique(self._root, obj, "")
        if not self._root.any_rules:
            return tuple(found)
        if any(cause.reason not in _NOT_BLOCKING for cause in found):
            return (*found, _NOT_ASKED)
        return (*found, *ask_rules(self._root, obj, "", before))

    def _without_own(self, obj: Obj, change: Any) -> Obj:  # noqa: ANN401 - one of two functions of shape
        own: Obj = {key: obj[key] for key in _OWN if key in obj}
        rest = {key: value for key, value in obj.items() if key not in _OWN}
        changed = change(self._root, rest)
        return obj if changed is rest else own | changed


@lru_cache(maxsize=32)
def _compiled(schema: str, path: str) -> nodes.Node:
    """
    Compile a schema, given as JSON. Whoever asks again, as each control plane of a process does, is given the same.

    Compiling the rules of a CRD takes some 50 ms; nothing changes what came of it.
    """
    root = nodes.build(json.loads(schema), path)
    _check_defaults(root, path)
    return root


def _check_count(path: str, obj: Obj) -> Iterator[Cause]:
    """Check a number that the scale subresource shows. The API server names it by its JSONPath, dot and all."""
    for value in jsonpaths.parse(path).find(obj):
        if type(value) in _GO_TYPES:
            shown = value if isinstance(value, str) else show(value)
            why = f"{path} accessor error: {shown} is of the type {_GO_TYPES[type(value)]}, expected int64"
            yield Cause(path, INVALID, f"Invalid value: 0: {why}")
        elif not isinstance(value, int):
            continue
        elif value < 0:
            yield Cause(path, INVALID, f"Invalid value: {value}: should be a non-negative integer")
        elif value > _COUNT_MAX:
            why = f"should be less than or equal to {_COUNT_MAX}"
            yield Cause(path, INVALID, f"Invalid value: {value}: {why}")


def _check_defaults(node: nodes.Node, path: str) -> None:
    """Refuse a default that the schema itself would refuse: every object without the field would be stuck."""
    if node.has_default:
        value = node.raw["default"]
        where = f"{path}.default"
        if shape.prune(node, value) != value:
            message = f"Invalid value: {show(value)}: must not have unknown fields"
            raise SchemaFault(Cause(where, INVALID, message))
        for fault in (
            *check(node, value, ""),
            *check_unique(node, value, ""),
            *ask_rules(node, value, ""),
        ):
            raise SchemaFault(Cause(where, fault.reason, fault.message))
    for name, child in node.properties.items():
        _check_defaults(child, f"{path}.properties[{name}]")
    if node.additional is not None:
        _check_defaults(node.additional, f"{path}.additionalProperties")
    if node.items is not None:
        _check_defaults(node.items, f"{path}.items")
