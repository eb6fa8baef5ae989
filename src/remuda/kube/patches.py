"""Patches of touched keys only: what we did not change is never sent, so it is never overwritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

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

    ``conditional`` adds the resourceVersion of ``before``: the patch conflicts if the object has changed since.
    """
    changes = _difference(msgspec.to_builtins(before), msgspec.to_builtins(after))
    if conditional:
        changes.setdefault("metadata", {})["resourceVersion"] = before.resource_version
    return MergePatch(changes)


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := _difference(old, value):
                changes[key] = inner
        elif key not in before or old != value:
            changes[key] = value
    return changes
