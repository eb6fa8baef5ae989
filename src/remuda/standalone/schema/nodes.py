"""
A schema, compiled: one node per place in the object, with everything decided that can be decided without an object.

Building the tree is also the check that a schema is structural and that each of its rules compiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from remuda.standalone.schema.cel import CelFault, Compiler, Program
from remuda.standalone.schema.faults import forbidden, invalid, required, unsupported
from remuda.standalone.schema.scope import (
    fields_read,
    first_unknown_field,
    refuse_times,
    relative_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]

TYPES: Final = ("object", "array", "string", "integer", "number", "boolean")
OBJECT_META: Final = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
)  # fmt: skip
_ANY: Final = {"x-kubernetes-preserve-unknown-fields": True}
_FORBIDDEN: Final = (
    "$ref",
    "patternProperties",
    "dependencies",
    "definitions",
    "uniqueItems",
    "deprecated",
)
_TYPELESS: Final = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")
_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
REASONS: Final = (
    "FieldValueInvalid",
    "FieldValueRequired",
    "FieldValueForbidden",
    "FieldValueDuplicate",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled ``x-kubernetes-validations`` entry."""

    text: str
    program: Program
    message: str
    message_program: Program | None
    reason: str
    field_path: str


@dataclass(slots=True, eq=False)
class Node:
    """One place in an object. ``raw`` is its schema, for the value checks."""

    raw: Schema
    type: str
    nullable: bool
    int_or_string: bool
    preserve: bool
    embedded: bool
    root: bool = False
    properties: dict[str, Node] = field(default_factory=dict)
    additional: Node | None = None
    items: Node | None = None
    pattern: Program | None = None
    rules: tuple[Rule, ...] = ()
    reads: frozenset[str] | None = None
    """The fields that the rules of this place read, in CEL's spelling; None if they may read any."""
    some_of: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    """``allOf``, ``anyOf``, ``oneOf`` and ``not``, as nodes."""
    any_rules: bool = False
    """Whether this place, or one below, has a rule."""
    any_transitions: bool = False
    any_keyed_lists: bool = False

    @property
    def list_type(self) -> str:
        return str(self.raw.get("x-kubernetes-list-type", "atomic"))

    @property
    def map_keys(self) -> list[str]:
        return list(self.raw.get("x-kubernetes-list-map-keys", ()))

    @property
    def has_default(self) -> bool:
        return self.raw.get("default") is not None

    def children(self) -> Iterator[Node]:
        yield from self.properties.values()
        if self.additional is not None:
            yield self.additional
        if self.items is not None:
            yield self.items


def build(schema: Schema, path: str = "openAPIV3Schema") -> Node:
    """Compile the schema of a whole object."""
    return _Builder().root(schema, path)


class _Builder:
    def __init__(self) -> None:
        self._cel = Compiler()

    def root(self, schema: Schema, path: str) -> Node:
        if schema.get("type") != "object":
            raise invalid(f"{path}.type", schema.get("type", ""), "must be object at the root")
        implied = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
        }
        whole = schema | {"properties": implied | schema.get("properties", {})}
        return self.node(whole, path, correlatable=True, root=True)

    def node(
        self,
        schema: Schema,
        path: str,
        *,
        correlatable: bool,
        value_only: bool = False,
        root: bool = False,
    ) -> Node:
        """Compile one place. ``value_only`` is for the branches of ``anyOf`` and its like, which name no type."""
        self._check_shape(schema, path, value_only=value_only)
        node = Node(
            raw=schema,
            type=schema.get("type", ""),
            nullable=bool(schema.get("nullable")),
            int_or_string=bool(schema.get("x-kubernetes-int-or-string")),
            preserve=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
            embedded=bool(schema.get("x-kubernetes-embedded-resource")),
            root=root,
        )
        self._add_children(node, path, correlatable=correlatable, value_only=value_only)
        if "pattern" in schema:
            node.pattern = self._pattern(schema["pattern"], f"{path}.pattern")
        node.some_of = self._some_of(schema, path)
        node.rules = tuple(
            self._rule(
                rule, f"{path}.x-kubernetes-validations[{i}]", node, correlatable=correlatable
            )
            for i, rule in enumerate(schema.get("x-kubernetes-validations", ()))
        )
        if node.type == "object" and node.additional is None:
            node.reads = fields_read(_texts(schema))
        _summarise(node)
        return node

    def _check_shape(self, schema: Schema, path: str, *, value_only: bool) -> None:
        for key in _FORBIDDEN:
            if schema.get(key):
                raise forbidden(f"{path}.{key}", f"{key} is not supported in a CRD's schema")
        kind = schema.get("type", "")
        if kind and kind not in TYPES:
            raise unsupported(f"{path}.type", kind, TYPES)
        if not kind and not value_only and not any(schema.get(key) for key in _TYPELESS):
            raise required(f"{path}.type", "must not be empty for specified object fields")
        if kind == "array" and "items" not in schema and not value_only:
            raise required(f"{path}.items", "must be specified")
        if schema.get("x-kubernetes-list-type") == "map" and not schema.get(_MAP_KEYS):
            raise required(
                f"{path}.{_MAP_KEYS}", "must not be empty if x-kubernetes-list-type is map"
            )

    def _add_children(self, node: Node, path: str, *, correlatable: bool, value_only: bool) -> None:
        schema = node.raw
        for name, child in schema.get("properties", {}).items():
            inner = f"{path}.properties[{name}]"
            node.properties[name] = self.node(
                child, inner, correlatable=correlatable, value_only=value_only
            )
        if node.embedded:
            self._embed(node, path)
        additional = schema.get("additionalProperties")
        if additional is True:
            node.preserve = True
        elif additional:
            inner = f"{path}.additionalProperties"
            node.additional = self.node(
                additional, inner, correlatable=correlatable, value_only=value_only
            )
        if "items" in schema:
            keyed = correlatable and schema.get("x-kubernetes-list-type") == "map"
            node.items = self.node(
                schema["items"], f"{path}.items", correlatable=keyed, value_only=value_only
            )

    def _embed(self, node: Node, path: str) -> None:
        """Give an embedded resource what every resource has."""
        known: dict[str, Schema] = dict.fromkeys(OBJECT_META, _ANY)
        implied: dict[str, Schema] = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": known},
        }
        for name, schema in implied.items():
            node.properties[name] = self.node(
                schema, f"{path}.properties[{name}]", correlatable=False
            )

    def _some_of(self, schema: Schema, path: str) -> dict[str, tuple[Node, ...]]:
        found = {}
        for key in ("allOf", "anyOf", "oneOf", "not"):
            branches = schema.get(key, ())
            branches = [branches] if isinstance(branches, dict) else branches
            if branches:
                found[key] = tuple(
                    self.node(branch, f"{path}.{key}[{i}]", correlatable=False, value_only=True)
                    for i, branch in enumerate(branches)
                )
        return found

    def _rule(self, rule: Schema, path: str, node: Node, *, correlatable: bool) -> Rule:
        text = rule.get("rule", "").strip()
        if not text:
            raise required(f"{path}.rule", "rule is not specified")
        reason = rule.get("reason", "FieldValueInvalid")
        if reason not in REASONS:
            raise unsupported(f"{path}.reason", reason, REASONS)
        program = self._program(rule, "rule", path, node)
        if program.transition and not correlatable:
            within = path.partition(".items")[0]
            why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
            raise invalid(f"{path}.rule", text, why)
        has_expression = bool(rule.get("messageExpression"))
        return Rule(
            text=text,
            program=program,
            message=rule.get("message", "").strip() or f"failed rule: {text}",
            message_program=self._program(rule, "messageExpression", path, node)
            if has_expression
            else None,
            reason=reason,
            field_path=relative_path(node, rule.get("fieldPath", ""), f"{path}.fieldPath"),
        )

    def _program(self, rule: Schema, key: str, path: str, node: Node) -> Program:
        text = rule[key].strip()
        refuse_times(node, text, f"{path}.{key}")
        compile_it = self._cel.rule if key == "rule" else self._cel.message
        try:
            program = compile_it(text, optional_old=bool(rule.get("optionalOldSelf")))
        except CelFault as fault:
            raise invalid(f"{path}.{key}", _go_rule(rule), str(fault)) from None
        if (unknown := first_unknown_field(node, text)) is not None:
            why = f"compilation failed: ERROR: undefined field '{unknown}'"
            raise invalid(f"{path}.{key}", _go_rule(rule), why)
        return program

    def _pattern(self, pattern: str, path: str) -> Program:
        try:
            return self._cel.pattern(pattern)
        except CelFault as fault:
            why = f"must be a valid regular expression, but isn't: {fault}"
            raise invalid(path, pattern, why) from None


def _texts(schema: Schema) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield rule.get("rule", "")
        yield rule.get("messageExpression", "")


def _go_rule(rule: Schema) -> Schema:
    """Show a rule as the API server prints it: the fields of its Go struct."""
    return {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _summarise(node: Node) -> None:
    below = list(node.children())
    node.any_rules = bool(node.rules) or any(n.any_rules for n in below)
    node.any_transitions = any(r.program.transition for r in node.rules) or any(
        n.any_transitions for n in below
    )
    node.any_keyed_lists = node.list_type in ("set", "map") or any(n.any_keyed_lists for n in below)
