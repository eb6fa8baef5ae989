"""
Reads the protobuf bodies that kubectl sends for the few kinds it makes itself (``kubectl create namespace`` and such).

Everything here is JSON inside; this only turns such a body into the JSON it stands for. Answers are always JSON, which
every client accepts. A kind that is not in the table is not decoded. Pure.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_VARINT_BITS_MAX = 63
_SIGN_BIT, _TWO_TO_64 = 1 << 63, 1 << 64


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its JSON name and what it holds. ``given`` fields keep an explicit zero; others mean absence by it."""

    name: str
    holds: str = "text"
    repeated: bool = False
    given: bool = False


def _texts(*names: str, first: int = 1) -> dict[int, _Field]:
    return {number: _Field(name) for number, name in enumerate(names, start=first)}


_META = {1: _Field("metadata", "ObjectMeta")}

_MESSAGES: Mapping[str, Mapping[int, _Field]] = {
    "Unknown": {1: _Field("typeMeta", "TypeMeta"), 2: _Field("raw", "raw")},
    "TypeMeta": _texts("apiVersion", "kind"),
    "ObjectMeta": {
        **_texts("name", "generateName", "namespace"),
        **_texts("uid", "resourceVersion", first=5),
        11: _Field("labels", "map of text"),
        12: _Field("annotations", "map of text"),
        13: _Field("ownerReferences", "OwnerReference", repeated=True),
        14: _Field("finalizers", repeated=True),
    },
    "OwnerReference": {
        1: _Field("kind"),
        **_texts("name", "uid", "apiVersion", first=3),
        6: _Field("controller", "flag", given=True),
        7: _Field("blockOwnerDeletion", "flag", given=True),
    },
    "DeleteOptions": {
        1: _Field("gracePeriodSeconds", "number", given=True),
        2: _Field("preconditions", "Preconditions"),
        3: _Field("orphanDependents", "flag", given=True),
        4: _Field("propagationPolicy"),
        5: _Field("dryRun", repeated=True),
    },
    "Preconditions": _texts("uid", "resourceVersion"),
    "Namespace": {**_META, 2: _Field("spec", "NamespaceSpec")},
    "NamespaceSpec": {1: _Field("finalizers", repeated=True)},
    "ConfigMap": {
        **_META,
        2: _Field("data", "map of text"),
        3: _Field("binaryData", "map of bytes"),
        4: _Field("immutable", "flag", given=True),
    },
    "Secret": {
        **_META,
        2: _Field("data", "map of bytes"),
        3: _Field("type"),
        4: _Field("stringData", "map of text"),
        5: _Field("immutable", "flag", given=True),
    },
    "ServiceAccount": {
        **_META,
        2: _Field("secrets", "ObjectReference", repeated=True),
        3: _Field("imagePullSecrets", "LocalObjectReference", repeated=True),
        4: _Field("automountServiceAccountToken", "flag", given=True),
    },
    "ObjectReference": _texts(
        "kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"
    ),
    "LocalObjectReference": _texts("name"),
    "TokenRequest": {**_META, 2: _Field("spec", "TokenRequestSpec")},
    "TokenRequestSpec": {
        1: _Field("audiences", repeated=True),
        3: _Field("boundObjectRef", "BoundObjectReference"),
        4: _Field("expirationSeconds", "number", given=True),
    },
    "BoundObjectReference": _texts("kind", "apiVersion", "name", "uid"),
    "SelfSubjectReview": _META,
    "SelfSubjectAccessReview": {**_META, 2: _Field("spec", "SelfSubjectAccessReviewSpec")},
    "SelfSubjectAccessReviewSpec": {
        1: _Field("resourceAttributes", "ResourceAttributes"),
        2: _Field("nonResourceAttributes", "NonResourceAttributes"),
    },
    "ResourceAttributes": _texts(
        "namespace", "verb", "group", "version", "resource", "subresource", "name"
    ),
    "NonResourceAttributes": _texts("path", "verb"),
    "Eviction": {**_META, 2: _Field("deleteOptions", "DeleteOptions")},
}

_KINDS = frozenset(
    {
        ("v1", "ConfigMap"),
        ("v1", "Namespace"),
        ("v1", "Secret"),
        ("v1", "ServiceAccount"),
        ("v1", "DeleteOptions"),
        ("meta.k8s.io/v1", "DeleteOptions"),
        ("authentication.k8s.io/v1", "SelfSubjectReview"),
        ("authentication.k8s.io/v1", "TokenRequest"),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
        ("policy/v1", "Eviction"),
    }
)


def decode(body: bytes) -> dict[str, Any] | None:
    """Return the object that a body stands for; None if its kind is not known here. ValueError if it is broken."""
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not begin as Kubernetes' protobuf does")
    envelope = _message("Unknown", memoryview(body)[len(_MAGIC) :])
    named = envelope.get("typeMeta", {})
    api_version, kind = named.get("apiVersion", ""), named.get("kind", "")
    if (api_version, kind) not in _KINDS:
        return None
    return {"apiVersion": api_version, "kind": kind, **_message(kind, envelope.get("raw", b""))}


def _message(name: str, data: memoryview | bytes) -> dict[str, Any]:
    known, found = _MESSAGES[name], dict[str, Any]()
    for number, value in _fields(memoryview(data)):
        field = known.get(number)
        if field is None:
            continue
        read = _value(field.holds, value)
        if field.repeated:
            found.setdefault(field.name, []).append(read)
        elif field.holds.startswith("map of "):
            found.setdefault(field.name, {}).update(read)
        elif read or field.given:
            found[field.name] = read
    return found


def _value(holds: str, value: int | memoryview) -> Any:  # noqa: ANN401 - JSON
    if holds in {"number", "flag"}:
        if not isinstance(value, int):
            raise ValueError("a number was expected")
        return (
            bool(value) if holds == "flag" else (value - _TWO_TO_64 if value & _SIGN_BIT else value)
        )
    if isinstance(value, int):
        raise ValueError("text or a message was expected")  # noqa: TRY004 - of the data, not of our types
    match holds:
        case "text":
            return str(value, "utf-8")
        case "raw":
            return value
        case "map of text" | "map of bytes":
            return _entry(value, as_text=holds == "map of text")
        case _:
            return _message(holds, value)


def _entry(data: memoryview, *, as_text: bool) -> dict[str, str]:
    parts = dict(_fields(data))
    key, value = parts.get(1, memoryview(b"")), parts.get(2, memoryview(b""))
    if isinstance(key, int) or isinstance(value, int):
        raise ValueError("a map of text was expected")  # noqa: TRY004 - of the data, not of our types
    return {str(key, "utf-8"): str(value, "utf-8") if as_text else b64encode(value).decode()}


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Split a message into its fields."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _LENGTH:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} is not used by Kubernetes")
        if at + size > len(data):
            raise ValueError("the body ends in the middle of a field")
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, _VARINT_BITS_MAX + 1, 7):
        if at >= len(data):
            raise ValueError("the body ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says "more follows"
            return value & (_TWO_TO_64 - 1), at
    raise ValueError("a number is too long")
