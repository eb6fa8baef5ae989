"""
Prune what a schema does not know, and fill in what it knows better. Pure: what does not change is shared, not copied.

Objects are never changed in place once stored, so an untouched part of the result may be the very part that came in.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda.standalone.schema.nodes import Node

Json = Any


def prune(node: Node, value: Json) -> Json:
    """Drop the fields that the schema does not name, at every depth."""
    if isinstance(value, dict):
        return _prune_object(node, value)
    if isinstance(value, list):
        if node.items is None:
            return value
        items = node.items
        return _same_or_new_list(value, [prune(items, item) for item in value])
    if isinstance(value, float) and node.type in ("integer", "number") and value.is_integer():
        return int(value)  # JSON has one sort of number, and Go writes 2.0 as 2
    return value


def _prune_object(node: Node, value: dict[str, Json]) -> dict[str, Json]:
    kept = {}
    changed = False
    for key, inner in value.items():
        child = node.properties.get(key) or node.additional
        if child is not None:
            kept[key] = prune(child, inner)
            changed = changed or kept[key] is not inner
        elif node.preserve:
            kept[key] = inner
        else:
            changed = True
    return kept if changed else value


def default(node: Node, value: Json) -> Json:
    """Fill in defaults where the parent is there; drop a null that is neither wanted nor has a default."""
    if isinstance(value, dict):
        return _default_object(node, value)
    if isinstance(value, list) and node.items is not None:
        items = node.items
        return _same_or_new_list(value, [_default_value(items, item) for item in value])
    return value


def _default_object(node: Node, value: dict[str, Json]) -> dict[str, Json]:
    filled = {}
    changed = False
    for key, inner in value.items():
        child = node.properties.get(key) or node.additional
        if child is None:
            filled[key] = inner
            continue
        if inner is None and not child.nullable and child.type and not child.has_default:
            changed = True
            continue
        filled[key] = _default_value(child, inner)
        changed = changed or filled[key] is not inner
    for key, child in node.properties.items():
        if key not in value and child.has_default:
            filled[key] = default(child, deepcopy(child.raw["default"]))
            changed = True
    return filled if changed else value


def _default_value(node: Node, value: Json) -> Json:
    if value is None and not node.nullable and node.has_default:
        value = deepcopy(node.raw["default"])
    return default(node, value)


def _same_or_new_list(before: list[Json], after: list[Json]) -> list[Json]:
    same = all(a is b for a, b in zip(before, after, strict=True))
    return before if same else after
