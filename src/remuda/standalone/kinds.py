"""Which kinds the control plane serves: the built-in ones, and those that CRDs add while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of ``kubectl get``: a JSONPath into the object. ``priority`` above 0 shows only in ``-o wide``."""

    name: str
    type: str
    json_path: str
    description: str = ""
    priority: int = 0
    format: str = ""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a kind with a ``scale`` subresource keeps what that subresource shows (JSONPaths)."""

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One served kind. ``schema`` is a CRD's OpenAPI v3 schema; built-in kinds have none and rules of their own."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    columns: tuple[PrinterColumn, ...] = ()
    schema: dict[str, Any] | None = field(default=None, hash=False, compare=False)
    scale: ScalePaths | None = None
    api_version: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Made once: every write asks for it.
        version = f"{self.group}/{self.version}" if self.group else self.version
        object.__setattr__(self, "api_version", version)

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"


class Kinds:
    """The served kinds, by group, version and plural."""

    def __init__(self, kinds: Iterable[ResourceKind]) -> None:
        self._by_path: dict[tuple[str, str, str], ResourceKind] = {}
        self.changes = 0
        """How often kinds came or went: what was derived from them holds while this stays the same."""
        for kind in kinds:
            self.add(kind)

    def add(self, kind: ResourceKind) -> None:
        self._by_path[kind.group, kind.version, kind.plural] = kind
        self.changes += 1

    def remove(self, group: str, plural: str) -> None:
        for path in [p for p in self._by_path if p[0] == group and p[2] == plural]:
            del self._by_path[path]
            self.changes += 1

    def find(self, group: str, version: str, plural: str) -> ResourceKind | None:
        return self._by_path.get((group, version, plural))

    def of_object(self, api_version: str, kind: str) -> ResourceKind | None:
        """Find the kind that a manifest or an owner reference names."""
        return next((k for k in self if k.api_version == api_version and k.kind == kind), None)

    def __iter__(self) -> Iterator[ResourceKind]:
        return iter(sorted(self._by_path.values(), key=lambda k: (k.group, k.version, k.plural)))


BUILT_IN = (
    ResourceKind("", "v1", "Namespace", "namespaces", "namespace", namespaced=False, short_names=("ns",),
                 subresources=("status", "finalize"),
                 verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection")),
    ResourceKind("", "v1", "Pod", "pods", "pod", short_names=("po",), categories=("all",),
                 subresources=("status", "binding", "log", "eviction")),
    ResourceKind("", "v1", "Node", "nodes", "node", namespaced=False, short_names=("no",),
                 subresources=("status",)),
    ResourceKind("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", short_names=("sa",),
                 subresources=("token",)),
    ResourceKind("", "v1", "Secret", "secrets", "secret"),
    ResourceKind("", "v1", "ConfigMap", "configmaps", "configmap", short_names=("cm",)),
    ResourceKind("", "v1", "Event", "events", "event", short_names=("ev",)),
    ResourceKind("coordination.k8s.io", "v1", "Lease", "leases", "lease"),
    ResourceKind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass", namespaced=False),
    ResourceKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
                 "customresourcedefinition", namespaced=False, short_names=("crd", "crds"),
                 categories=("api-extensions",), subresources=("status",)),
    ResourceKind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "tokenreview",
                 namespaced=False, verbs=("create",)),
    ResourceKind("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview",
                 namespaced=False, verbs=("create",)),
    ResourceKind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews",
                 "selfsubjectaccessreview", namespaced=False, verbs=("create",)),
)  # fmt: skip
