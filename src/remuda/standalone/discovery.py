"""
What is served, as clients ask for it: groups, versions, resources, and the version of the server. Pure.

Both dialects: the aggregated one that current kubectl asks for in one request per root, and the older one with a
request per group and version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.standalone.kinds import Kinds, ResourceKind
    from remuda.standalone.objects import Obj

VERSION: Final = {"major": "1", "minor": "37", "gitVersion": "v1.37.1+remuda"}
"""The Kubernetes release whose behaviour is the model: the one that the contract suite runs against."""

_AGGREGATED_VERSIONS: Final = ("v2", "v2beta1")


def answer(kinds: Kinds, path: str, accept: str) -> Obj | None:
    """Answer a discovery request; None if the path is not one, or names a group that is not served."""
    match path.strip("/").split("/"):
        case ["version"]:
            return _version()
        case ["api" | "apis" as root]:
            core = root == "api"
            plain = _core_versions() if core else _group_list(kinds)
            return _aggregated(kinds, accept, core=core) or plain
        case ["api", version]:
            return _resource_list(kinds, "", version)
        case ["apis", group]:
            return _group(kinds, group)
        case ["apis", group, version]:
            return _resource_list(kinds, group, version)
        case _:
            return None


def _version() -> Obj:
    return {
        **VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


# --- Subresources ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subresource:
    """What a subresource offers. An empty kind means that of its resource."""

    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    kind: str = ""


SUBRESOURCES: Final = {
    "binding": Subresource(("create",), "", "v1", "Binding"),
    "eviction": Subresource(("create",), "policy", "v1", "Eviction"),
    "finalize": Subresource(("update",)),
    "log": Subresource(("get",)),
    "scale": Subresource(("get", "patch", "update"), "autoscaling", "v1", "Scale"),
    "status": Subresource(("get", "patch", "update")),
    "token": Subresource(("create",), "authentication.k8s.io", "v1", "TokenRequest"),
}

# --- One request per group and version -------------------------------------------------------------------------------


def _core_versions() -> Obj:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _groups(kinds: Kinds) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in kinds:
        versions = found.setdefault(kind.group, [])
        if kind.version not in versions:
            versions.append(kind.version)
    return found


def _group_list(kinds: Kinds) -> Obj:
    groups = [_group_entry(group, versions) for group, versions in _groups(kinds).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(kinds: Kinds, group: str) -> Obj | None:
    versions = _groups(kinds).get(group)
    if not group or versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(group, versions)}


def _group_entry(group: str, versions: list[str]) -> Obj:
    entries = [{"groupVersion": f"{group}/{v}", "version": v} for v in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _resource_list(kinds: Kinds, group: str, version: str) -> Obj | None:
    served = _served(kinds, group, version)
    if not served:
        return None
    resources = [entry for kind in served for entry in _resource_entries(kind)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _served(kinds: Iterable[ResourceKind], group: str, version: str) -> list[ResourceKind]:
    return [kind for kind in kinds if (kind.group, kind.version) == (group, version)]


def _resource_entries(kind: ResourceKind) -> list[Obj]:
    own: Obj = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
        **_names(kind),
    }
    return [own, *(_subresource_entry(kind, name) for name in kind.subresources)]


def _subresource_entry(kind: ResourceKind, name: str) -> Obj:
    sub = SUBRESOURCES[name]
    elsewhere = {"group": sub.group, "version": sub.version} if sub.group else {}
    return {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        **elsewhere,
        "kind": sub.kind or kind.kind,
        "verbs": list(sub.verbs),
    }


def _names(kind: ResourceKind) -> Obj:
    short = {"shortNames": list(kind.short_names)} if kind.short_names else {}
    categories = {"categories": list(kind.categories)} if kind.categories else {}
    return short | categories


# --- All in one request ----------------------------------------------------------------------------------------------


def _aggregated(kinds: Kinds, accept: str, *, core: bool) -> Obj | None:
    version = _aggregated_version(accept)
    if version is None:
        return None
    groups = {group: vs for group, vs in _groups(kinds).items() if (group == "") is core}
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_aggregated_group(kinds, group, versions) for group, versions in groups.items()],
    }


def _aggregated_version(accept: str) -> str | None:
    """Find the first offer of the Accept header that is the aggregated form; JSON is all we write."""
    for offer in accept.split(","):
        parts = [part.strip() for part in offer.split(";")]
        options = dict(part.split("=", 1) for part in parts[1:] if "=" in part)
        wanted = options.get("v", "")
        is_list = options.get("as") == "APIGroupDiscoveryList" and parts[0] == "application/json"
        if is_list and wanted in _AGGREGATED_VERSIONS:
            return wanted
        if parts[0] == "application/json" and "as" not in options:
            return None
    return None


def _aggregated_group(kinds: Kinds, group: str, versions: list[str]) -> Obj:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [_aggregated_resource(k) for k in _served(kinds, group, version)],
                "freshness": "Current",
            }
            for version in versions
        ],
    }


def _aggregated_resource(kind: ResourceKind) -> Obj:
    subresources = [_aggregated_subresource(kind, name) for name in kind.subresources]
    return {
        "resource": kind.plural,
        "responseKind": _response_kind(kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
        **_names(kind),
        **({"subresources": subresources} if subresources else {}),
    }


def _aggregated_subresource(kind: ResourceKind, name: str) -> Obj:
    sub = SUBRESOURCES[name]
    elsewhere = {"group": sub.group, "version": sub.version, "kind": sub.kind}
    response = elsewhere if sub.kind else _response_kind(kind)
    return {"subresource": name, "responseKind": response, "verbs": list(sub.verbs)}


def _response_kind(kind: ResourceKind) -> Obj:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
