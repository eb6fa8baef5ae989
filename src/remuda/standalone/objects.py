"""Objects as the control plane keeps them: plain JSON. Never changed once stored; a change is a new object."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
"""One whole Kubernetes object, ``apiVersion`` and ``kind`` included."""


def metadata(obj: Obj) -> dict[str, Any]:
    found: dict[str, Any] = obj["metadata"]
    return found


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def namespace_of(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace", ""))


def uid_of(obj: Obj) -> str:
    return str(obj["metadata"]["uid"])


def version_of(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])
