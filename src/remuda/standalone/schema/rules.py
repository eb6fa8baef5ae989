"""
Ask the CEL rules of a schema about one object.

A rule that reads ``oldSelf`` is asked only where there is an old value to compare with; any other rule is not held
against a value that did not change. A rule that cannot be decided is a fault of the object, never a pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from remuda.standalone.errors import Cause
from remuda.standalone.schema.cel import EvaluationFault
from remuda.standalone.schema.checks import (
    ABSENT,
    INVALID,
    is_type,
    old_item,
    old_property,
    show,
    unchanged,
)
from remuda.standalone.schema.scope import cel_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.standalone.schema.nodes import Node, Rule

Json = Any

_ROOT_METADATA: Final = ("name", "generateName")
_MESSAGE_LENGTH_MAX: Final = 5120


def ask_rules(node: Node, value: Json, path: str, old: Json = ABSENT) -> Iterator[Cause]:
    """
    Yield the rules that a value breaks, its own first, then those of its parts.

    A value of the wrong type got here only because it is old and unchanged; no rule can say anything about it.
    """
    if not node.any_rules or value is None:
        return
    is_old = old is not ABSENT and unchanged(value, old)
    if is_old and not node.any_transitions:
        return
    if node.rules and is_type(node, value):
        yield from _own_rules(node, value, path, old, is_old=is_old)
    if isinstance(value, dict):
        yield from _object(node, value, path, old)
    elif isinstance(value, list) and node.items is not None:
        for i, item in enumerate(value):
            yield from ask_rules(node.items, item, f"{path}[{i}]", old_item(node, item, old))


def _object(node: Node, value: dict[str, Json], path: str, old: Json) -> Iterator[Cause]:
    for key in sorted(value):
        child = node.properties.get(key)
        if child is not None:
            inner = f"{path}.{key}" if path else key
            yield from ask_rules(child, value[key], inner, old_property(key, old))
        elif node.additional is not None:
            yield from ask_rules(
                node.additional, value[key], f"{path}[{key}]", old_property(key, old)
            )


def _own_rules(node: Node, value: Json, path: str, old: Json, *, is_old: bool) -> Iterator[Cause]:
    has_old = old is not ABSENT
    compares = any(rule.program.transition for rule in node.rules)
    seen = _Seen(
        value=_own_view(node, value),
        old=_own_view(node, old) if has_old and compares else None,
        has_old=has_old,
    )
    for rule in node.rules:
        transition = rule.program.transition
        asked = not is_old if not transition else has_old or rule.program.optional_old
        if asked and (fault := _fault(rule, seen)) is not None:
            yield _cause(rule, fault, path, value)


class _Seen:
    """What a rule gets to see of one value."""

    def __init__(self, *, value: Json, old: Json, has_old: bool) -> None:
        self.value, self.old, self.has_old = value, old, has_old


def _fault(rule: Rule, seen: _Seen) -> str | EvaluationFault | None:
    """Return None if the rule holds; else its message, or why it has no answer."""
    try:
        if rule.program.ask(seen.value, seen.old, has_old=seen.has_old) is True:
            return None
    except EvaluationFault as fault:
        return fault
    if rule.message_program is None:
        return rule.message
    try:
        message = rule.message_program.ask(seen.value, seen.old, has_old=seen.has_old)
    except EvaluationFault:
        return rule.message
    usable = isinstance(message, str) and message.strip() and "\n" not in message
    return str(message).strip() if usable and len(message) <= _MESSAGE_LENGTH_MAX else rule.message


def _cause(rule: Rule, fault: str | EvaluationFault, path: str, value: Json) -> Cause:
    if isinstance(fault, EvaluationFault):
        kind = show(value)
        if isinstance(value, dict | list):
            kind = '"object"' if isinstance(value, dict) else '"array"'
        return Cause(
            path or "<nil>",
            INVALID,
            f"Invalid value: {kind}: {fault} evaluating rule: {_name(rule)}",
        )
    where = ".".join(part for part in (path, rule.field_path) if part) or "<nil>"
    shown = "" if isinstance(value, dict | list) else f"{show(value)}"
    match rule.reason:
        case "FieldValueRequired":
            return Cause(where, rule.reason, f"Required value: {fault}")
        case "FieldValueForbidden":
            return Cause(where, rule.reason, f"Forbidden: {fault}")
        case "FieldValueDuplicate":
            return Cause(
                where, rule.reason, f"Duplicate value: {shown}" if shown else "Duplicate value"
            )
        case _:
            return Cause(
                where,
                INVALID,
                f"Invalid value: {shown}: {fault}" if shown else f"Invalid value: {fault}",
            )


def _name(rule: Rule) -> str:
    return rule.message.removeprefix("failed rule: ")


# --- What a rule sees ------------------------------------------------------------------------------------------------


def _own_view(node: Node, value: Json) -> Json:
    """Show a value to the rules of its own place: of an object, only the fields that they read."""
    if node.reads is None or not isinstance(value, dict):
        return view(node, value)
    return view(node, {key: value[key] for key in value if cel_name(key) in node.reads})


def view(node: Node, value: Json) -> Json:
    """Show a value as rules see it: declared fields only, names spelled for CEL, every ``number`` a double."""
    if isinstance(value, dict):
        if node.root:
            return _root_view(node, value)
        if node.additional is not None:
            additional = node.additional
            return {key: view(additional, inner) for key, inner in value.items()}
        return _fields_view(node, value)
    if isinstance(value, list):
        items = node.items
        return [view(items, item) for item in value] if items is not None else value
    if node.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _fields_view(node: Node, value: dict[str, Json]) -> dict[str, Json]:
    return {
        cel_name(key): view(node.properties[key], inner)
        for key, inner in value.items()
        if key in node.properties
    }


def _root_view(node: Node, value: dict[str, Json]) -> dict[str, Json]:
    metadata = value.get("metadata", {})
    named = {key: metadata[key] for key in _ROOT_METADATA if key in metadata}
    return _fields_view(node, value) | {"metadata": named}
