"""Patches of touched keys only: what we did not change is never sent, so it is never overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

if TYPE_CHECKING:
    from remuda.kube.meta import Resource

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]


@dataclass(frozen=True, slots=True)
class MergePatch:
    """RFC 7386: the keys to set; None removes a key."""

    changes: dict[str, JsonValue]
    content_type = "application/merge-patch+json"

    def encode(self) -> bytes:
        return msgspec.json.encode(self.changes)


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """RFC 6902: operations in order, all or nothing. ``test`` operations make it conditional."""

    operations: tuple[dict[str, JsonValue], ...]
    content_type = "application/json-patch+json"

    def encode(self) -> bytes:
        return msgspec.json.encode(self.operations)


Patch = MergePatch | JsonPatch


def merge_patch(before: Resource, after: Resource, *, conditional: bool = False) -> MergePatch:
    """
    Return what turns ``before`` into ``after``, touched keys only.

    What others added to a part or a map since we looked stays: only an optional part that became None goes whole.
    ``conditional`` adds the resourceVersion of ``before``: the patch conflicts if the object has changed since.
    """
    changes = _of_parts(before, after)
    if conditional:
        changes.setdefault("metadata", {})["resourceVersion"] = before.resource_version
    return MergePatch(changes)


def _of_parts(before: Struct, after: Struct) -> dict[str, Any]:
    """Compare field by field: JSON alone does not tell an empty map, which is left out, from one that is gone."""
    old_json, new_json = msgspec.to_builtins(before), msgspec.to_builtins(after)
    changes: dict[str, Any] = {}
    for field in _fields_of(type(after)):
        key = field.encode_name
        old, new = getattr(before, field.name), getattr(after, field.name)
        if isinstance(new, Struct) and type(old) is type(new):
            inner = _of_parts(old, new)
        elif isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = _of_maps(old_json.get(key, {}), new_json.get(key, {}))
        else:
            changes |= _of_maps(_only(old_json, key), _only(new_json, key))
            continue
        if inner:
            changes[key] = inner
    return changes


@cache
def _fields_of(part: type[Struct]) -> tuple[FieldInfo, ...]:
    """Return a type's fields; msgspec works them out anew each time, which takes longer than all the rest."""
    return fields(part)


def _only(found: dict[str, Any], key: str) -> dict[str, Any]:
    return {key: found[key]} if key in found else {}


def _of_maps(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := _of_maps(old, value):
                changes[key] = inner
        elif key not in before or old != value:
            changes[key] = value
    return changes
