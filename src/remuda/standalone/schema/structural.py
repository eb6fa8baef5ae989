"""One CRD version's schema: compile it once, then prune, default and validate many objects. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from remuda.standalone.errors import Cause
from remuda.standalone.schema import nodes, shape
from remuda.standalone.schema.checks import ABSENT, INVALID, check, check_unique, show
from remuda.standalone.schema.faults import SchemaFault
from remuda.standalone.schema.rules import ask_rules

if TYPE_CHECKING:
    from remuda.standalone.objects import Obj

_OWN: Final = ("apiVersion", "kind", "metadata")
"""At the root these belong to the API server and are neither pruned nor defaulted."""

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

    def __init__(self, schema: dict[str, Any], path: str = "openAPIV3Schema") -> None:
        self._root = nodes.build(schema, path)
        _check_defaults(self._root, path)

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
