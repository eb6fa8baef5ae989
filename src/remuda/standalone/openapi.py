"""
The OpenAPI documents that kubectl reads: for ``explain``, and to learn that the server itself checks fields. Pure.

Version 3 has an index and one document per group and version. Version 2, which only old clients read, has schemas
and no paths. No document offers strategic merge patches: of built-in kinds kubectl knows the merge keys by itself.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from remuda.standalone import openapi_schemas as schemas
from remuda.standalone.discovery import SUBRESOURCES, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.standalone.kinds import Kinds, ResourceKind
    from remuda.standalone.objects import Obj

_INFO: Final = {"title": "Remuda control plane", "version": VERSION["gitVersion"]}
_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json")


def answer(kinds: Kinds, path: str) -> Obj | None:
    """Answer a request for an OpenAPI document; None if the path is not one."""
    match path.strip("/").split("/"):
        case ["openapi", "v2"]:
            return _version_2(kinds)
        case ["openapi", "v3"]:
            return _index(kinds)
        case ["openapi", "v3", "api", version]:
            return _document(_served(kinds, "", version))
        case ["openapi", "v3", "apis", group, version]:
            return _document(_served(kinds, group, version))
        case _:
            return None


def _served(kinds: Kinds, group: str, version: str) -> list[ResourceKind]:
    return [kind for kind in kinds if (kind.group, kind.version) == (group, version)]


def _index(kinds: Kinds) -> Obj:
    """List the documents. The hash of each is in its address: kubectl keeps a copy until it changes."""
    roots = sorted({_root(kind).strip("/") for kind in kinds})
    return {"paths": {root: {"serverRelativeURL": _address(kinds, root)} for root in roots}}


def _address(kinds: Kinds, root: str) -> str:
    document = answer(kinds, f"/openapi/v3/{root}")
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return f"/openapi/v3/{root}?hash={digest[:32].upper()}"


def _root(kind: ResourceKind) -> str:
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def _document(kinds: list[ResourceKind]) -> Obj | None:
    if not kinds:
        return None
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": {path: item for kind in kinds for path, item in _paths(kind)},
        "components": {"schemas": schemas.components(kinds, "#/components/schemas/")},
    }


def _version_2(kinds: Kinds) -> Obj:
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": {},
        "definitions": schemas.components(list(kinds), "#/definitions/"),
    }


# --- Paths -----------------------------------------------------------------------------------------------------------

_COLLECTION: Final = {
    "get": ("list", "list"),
    "post": ("create", "post"),
    "delete": ("deletecollection",) * 2,
}
_ITEM: Final = {
    "get": ("get",) * 2,
    "put": ("update", "put"),
    "patch": ("patch",) * 2,
    "delete": ("delete",) * 2,
}
"""Method: the verb that allows it, and the action that it is called."""


def _paths(kind: ResourceKind) -> Iterator[tuple[str, Obj]]:
    root = _root(kind)
    home = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    namespace = [_path_parameter("namespace")] if kind.namespaced else []
    yield f"{home}/{kind.plural}", _item(kind, _COLLECTION, kind.verbs, namespace)
    if kind.namespaced and "list" in kind.verbs:
        yield f"{root}/{kind.plural}", _item(kind, {"get": ("list", "list")}, kind.verbs, [])
    if "get" in kind.verbs:
        named = [_path_parameter("name"), *namespace]
        yield f"{home}/{kind.plural}/{{name}}", _item(kind, _ITEM, kind.verbs, named)
        for name in kind.subresources:
            methods = _ITEM | {"post": ("create", "post")}
            verbs = SUBRESOURCES[name].verbs
            yield f"{home}/{kind.plural}/{{name}}/{name}", _item(kind, methods, verbs, named)


def _item(
    kind: ResourceKind,
    methods: Mapping[str, tuple[str, ...]],
    verbs: tuple[str, ...],
    parameters: list[Obj],
) -> Obj:
    operations: Obj = {
        method: _operation(kind, method, action)
        for method, (verb, action) in methods.items()
        if verb in verbs
    }
    return operations | {"parameters": parameters}


def _operation(kind: ResourceKind, method: str, action: str) -> Obj:
    name = schemas.name_of(kind)
    shown = f"{name}List" if action == "list" else name
    return {
        "description": f"{action} {kind.kind}",
        "operationId": f"{action}_{kind.group}_{kind.version}_{kind.kind}",
        "parameters": [_query_parameter(key) for key in _QUERY.get(method, ())],
        **_body(method, name),
        "responses": {
            "200": {"description": "OK", "content": _content("application/json", shown)},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": schemas.gvk(kind),
    }


_QUERY: Final = {
    "post": ("dryRun", "fieldManager", "fieldValidation"),
    "put": ("dryRun", "fieldManager", "fieldValidation"),
    "patch": ("dryRun", "fieldManager", "fieldValidation"),
    "delete": ("dryRun", "gracePeriodSeconds", "propagationPolicy"),
}
_QUERY_MEANS: Final = {
    "dryRun": "All: check and answer, but change nothing.",
    "fieldManager": "Who makes the change.",
    "fieldValidation": "Strict refuses unknown fields, Warn drops them and says so, Ignore drops them.",
    "gracePeriodSeconds": "How long the object may take to end by itself.",
    "propagationPolicy": "What becomes of the objects that this one owns: Background, Foreground or Orphan.",
}


def _query_parameter(name: str) -> Obj:
    schema = {"type": "integer" if name == "gracePeriodSeconds" else "string", "uniqueItems": True}
    return {"name": name, "in": "query", "description": _QUERY_MEANS[name], "schema": schema}


def _path_parameter(name: str) -> Obj:
    schema = {"type": "string", "uniqueItems": True}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": f"The {name}.",
        "schema": schema,
    }


def _body(method: str, name: str) -> Obj:
    if method in ("post", "put"):
        return {"requestBody": {"content": _content("application/json", name), "required": True}}
    if method == "patch":
        content: dict[str, Any] = {}
        for media_type in _PATCHES:
            content |= _content(media_type, schemas.PATCH)
        return {"requestBody": {"content": content, "required": True}}
    return {}


def _content(media_type: str, name: str) -> Obj:
    return {media_type: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
