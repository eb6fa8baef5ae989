"""
The schemas inside the OpenAPI documents: of custom resources their own, of built-in kinds what our types hold.

Built-in kinds are shown with the fields that we use and stay open for others: the list is for reading, not a check.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import inspect

from remuda.kube import core
from remuda.kube.meta import ObjectMeta, Part, Resource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.kube.kinds import Kind
    from remuda.standalone.kinds import ResourceKind

Schema = dict[str, Any]

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META: Final = f"{_META}.ObjectMeta"
LIST_META: Final = f"{_META}.ListMeta"
PATCH: Final = f"{_META}.Patch"

_PACKAGES: Final = {
    "": "io.k8s.api.core",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    "authentication.k8s.io": "io.k8s.api.authentication",
    "authorization.k8s.io": "io.k8s.api.authorization",
    "coordination.k8s.io": "io.k8s.api.coordination",
    "node.k8s.io": "io.k8s.api.node",
}

_TYPES: Final[dict[tuple[str, str], Kind[Resource]]] = {
    (kind.group, kind.name): kind
    for kind in (
        core.POD, core.NODE, core.SERVICE_ACCOUNT, core.NAMESPACE, core.SECRET, core.EVENT, core.LEASE,
        core.RUNTIME_CLASS,
    )
}  # fmt: skip

_MEANS: Final = {
    "ConfigMap": "Settings, as text by key.",
    "CustomResourceDefinition": "A kind that is added to this API.",
    "Event": "Something that happened to an object.",
    "Lease": "A claim that its holder must renew.",
    "Namespace": "A scope for names.",
    "Node": "A machine that runs Pods.",
    "Pod": "Containers that run together on one Node; here, mostly one runner.",
    "RuntimeClass": "How a Node runs a Pod's containers.",
    "Secret": "Something to keep from being read, as base64 by key.",
    "SelfSubjectAccessReview": "The question whether one may do something.",
    "ServiceAccount": "An identity for a Pod.",
    "TokenReview": "The question whose token it is.",
}

_METADATA_MEANS: Final = {
    "name": "The name, unique in its namespace. It cannot change.",
    "generateName": "The beginning of a name that the server completes, where name is empty.",
    "namespace": "The scope of the name.",
    "uid": "Tells this object from every other of the same name, past or future. Set by the server.",
    "resourceVersion": "Changes with every write. A write that carries an old one is refused.",
    "generation": "Changes with every change of what is wanted. Set by the server.",
    "creationTimestamp": "When it was created. Set by the server.",
    "deletionTimestamp": "Since when it is being deleted. Set by the server.",
    "deletionGracePeriodSeconds": "How long it may take to end by itself.",
    "labels": "Names and values to select objects by.",
    "annotations": "Names and values that nothing selects by.",
    "finalizers": "Who has to let go before the object disappears.",
    "ownerReferences": "The objects that this one belongs to, and goes with.",
}


def name_of(kind: ResourceKind) -> str:
    """Name a kind's schema as Kubernetes does."""
    if kind.schema is None and kind.group in _PACKAGES:
        return f"{_PACKAGES[kind.group]}.{kind.version}.{kind.kind}"
    reverse = ".".join(reversed(kind.group.split(".")))
    return f"{reverse}.{kind.version}.{kind.kind}"


def gvk(kind: ResourceKind) -> Schema:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def components(kinds: Iterable[ResourceKind], refs: str) -> dict[str, Schema]:
    """Return the schemas of some kinds, of lists of them, and of what they share, with references below ``refs``."""
    found: dict[str, Schema] = {
        OBJECT_META: _object_meta(),
        LIST_META: _list_meta(),
        PATCH: {
            "type": "object",
            "description": "A patch, in the form that its content type names.",
        },
    }
    for kind in kinds:
        found[name_of(kind)] = _resource(kind, refs)
        if "list" in kind.verbs:
            found[f"{name_of(kind)}List"] = _list(kind, refs)
    return found


def _resource(kind: ResourceKind, refs: str) -> Schema:
    schema = _built_in(kind) if kind.schema is None else _custom(kind.schema)
    own = {
        "apiVersion": _text("The version of this kind's schema."),
        "kind": _text(f"Always {kind.kind}."),
        "metadata": {
            "description": "What every object has: its name, its labels, its owners.",
            "allOf": [{"$ref": refs + OBJECT_META}],
        },
    }
    return schema | {
        "properties": own | {k: v for k, v in schema.get("properties", {}).items() if k not in own},
        "x-kubernetes-group-version-kind": [gvk(kind)],
    }


def _list(kind: ResourceKind, refs: str) -> Schema:
    return {
        "type": "object",
        "description": f"A list of {kind.kind} objects.",
        "required": ["items"],
        "properties": {
            "apiVersion": _text("The version of this list's schema."),
            "kind": _text(f"Always {kind.list_kind}."),
            "metadata": {
                "description": "Where the list stands.",
                "allOf": [{"$ref": refs + LIST_META}],
            },
            "items": {
                "type": "array",
                "description": "The objects.",
                "items": {"$ref": refs + name_of(kind)},
            },
        },
        "x-kubernetes-group-version-kind": [gvk(kind) | {"kind": kind.list_kind}],
    }


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _list_meta() -> Schema:
    return {
        "type": "object",
        "description": "Where a list stands.",
        "properties": {
            "resourceVersion": _text("The version to watch from."),
            "continue": _text("Asks for the next page; empty on the last one."),
            "remainingItemCount": {"type": "integer", "description": "How many objects are left."},
        },
    }


# --- Custom resources ------------------------------------------------------------------------------------------------


def _custom(schema: Schema) -> Schema:
    """Show a CRD's schema as clients expect it: an int-or-string as a choice of the two."""
    shown = dict(schema)
    if schema.get("x-kubernetes-int-or-string"):
        shown["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "properties" in schema:
        shown["properties"] = {key: _custom(child) for key, child in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            shown[key] = _custom(schema[key])
    return shown


# --- Built-in kinds --------------------------------------------------------------------------------------------------


def _built_in(kind: ResourceKind) -> Schema:
    description = {"description": _MEANS.get(kind.kind, kind.kind)}
    known = _TYPES.get((kind.group, kind.kind))
    if known is None:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **description}
    return _type_schema(known.type) | description


def _object_meta() -> Schema:
    schema = _type_schema(ObjectMeta)
    described = {
        name: child | {"description": _METADATA_MEANS[name]}
        for name, child in schema["properties"].items()
    }
    return schema | {"properties": described, "description": "What every object has."}


@cache  # types do not change while we run, and looking into them takes milliseconds
def _type_schema(of: type[Part]) -> Schema:
    return _schema(inspect.type_info(of))


def _schema(info: inspect.Type) -> Schema:
    match info:
        case inspect.Metadata(type=inner):
            return _schema(inner)
        case inspect.StructType(fields=fields):
            return {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {field.encode_name: _schema(field.type) for field in fields},
            }
        case inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": _schema(item)}
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _schema(value)}
        case inspect.UnionType(types=types):
            return next(_schema(one) for one in types if not isinstance(one, inspect.NoneType))
        case _:
            return dict(_PLAIN.get(type(info), {}))


_PLAIN: Final[dict[type[inspect.Type], Schema]] = {
    inspect.StrType: {"type": "string"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.BytesType: {"type": "string", "format": "byte"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
}
