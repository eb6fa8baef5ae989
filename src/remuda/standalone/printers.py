"""The columns of the built-in kinds, as people know them from ``kubectl get``. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.standalone.ages import age
from remuda.standalone.objects import metadata
from remuda.standalone.pod_rows import pod_cells

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from remuda.standalone.objects import Obj


@dataclass(frozen=True, slots=True)
class Column:
    """The head of one column. ``priority`` above 0 shows only in ``-o wide``."""

    name: str
    type: str = "string"
    description: str = ""
    priority: int = 0
    format: str = ""


NAME: Final = Column("Name", description="The name, unique in its namespace.", format="name")
AGE: Final = Column("Age", description="How long ago it was created.")


def _wide(name: str, description: str) -> Column:
    return Column(name, description=description, priority=1)


def _common(obj: Obj, now: datetime) -> tuple[str, str]:
    meta = metadata(obj)
    return str(meta.get("name", "")), age(meta.get("creationTimestamp"), now)


# --- Pods and Nodes --------------------------------------------------------------------------------------------------

_POD_COLUMNS: Final = (
    NAME,
    Column("Ready", description="Containers that are ready, of all."),
    Column("Status", description="What the Pod is doing, or why it is not."),
    Column("Restarts", description="How often its containers were started again."),
    AGE,
    _wide("IP", "The Pod's address."),
    _wide("Node", "The Node that the Pod is bound to."),
    _wide("Nominated Node", "The Node that is being cleared for the Pod."),
    _wide("Readiness Gates", "Conditions that must hold before the Pod is ready."),
)

_NODE_COLUMNS: Final = (
    NAME,
    Column("Status", description="Whether the Node is ready."),
    Column("Roles", description="The roles that its labels give it."),
    AGE,
    Column("Version", description="The version that its agent reports."),
    _wide("Internal-IP", "Its address inside the cluster."),
    _wide("External-IP", "Its address outside."),
    _wide("OS-Image", "The operating system."),
    _wide("Kernel-Version", "The kernel."),
    _wide("Container-Runtime", "What runs its containers."),
)

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_NONE: Final = "<none>"


def _node_cells(obj: Obj, now: datetime) -> list[Any]:
    name, created = _common(obj, now)
    status = obj.get("status", {})
    info = status.get("nodeInfo", {})
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    return [
        name,
        _node_status(obj),
        _node_roles(obj),
        created,
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _node_status(obj: Obj) -> str:
    conditions = obj.get("status", {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)
    words = {None: "Unknown", "True": "Ready"}
    shown = words.get(ready, "NotReady")
    return f"{shown},SchedulingDisabled" if obj.get("spec", {}).get("unschedulable") else shown


def _node_roles(obj: Obj) -> str:
    labels = metadata(obj).get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles |= {labels[key] for key in ("kubernetes.io/role",) if labels.get(key)}
    return ",".join(sorted(role for role in roles if role)) or _NONE


# --- The small ones --------------------------------------------------------------------------------------------------

_EVENT_COLUMNS: Final = (
    Column("Last Seen", description="How long ago it happened last."),
    Column("Type", description="Normal or Warning."),
    Column("Reason", description="What happened, in one word."),
    Column("Object", description="What it happened to."),
    _wide("Subobject", "Which part of it."),
    _wide("Source", "Who says so."),
    Column("Message", description="What happened, in a sentence."),
    _wide("First Seen", "How long ago it happened first."),
    _wide("Count", "How often it happened."),
    Column(NAME.name, description=NAME.description, priority=1, format="name"),
)

_CRD_COLUMNS: Final = (
    NAME,
    Column("Scope", description="Cluster or Namespaced."),
    Column("Versions", description="The versions that are served."),
    Column("Created At", type="date", description="When it was created."),
    _wide("Group", "The API group."),
    _wide("Kind", "The kind that it adds."),
    _wide("ShortNames", "The short names of that kind."),
    Column("Established", type="boolean", description="Whether it is served.", priority=1),
)


def _event_cells(obj: Obj, now: datetime) -> list[Any]:
    about = obj.get("involvedObject", {})
    source = obj.get("source", {})
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    last = obj.get("lastTimestamp") or first
    component = source.get("component") or obj.get("reportingComponent", "")
    host = source.get("host", "")
    return [
        age(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        str(obj.get("message", "")).strip(),
        age(first, now),
        str(obj.get("count") or 1),
        metadata(obj).get("name", ""),
    ]


def _crd_cells(obj: Obj, _: datetime) -> list[Any]:
    spec = obj.get("spec", {})
    names = spec.get("names", {})
    versions = [
        f"{v['name']}(storage)" if v.get("storage") else v["name"]
        for v in spec.get("versions", ())
        if v.get("served")
    ]
    conditions = obj.get("status", {}).get("conditions", ())
    return [
        metadata(obj).get("name", ""),
        spec.get("scope", ""),
        ",".join(versions),
        metadata(obj).get("creationTimestamp", ""),
        spec.get("group", ""),
        names.get("kind", ""),
        ",".join(names.get("shortNames", ())),
        any(c["type"] == "Established" and c["status"] == "True" for c in conditions),
    ]


def _simple(cell: Callable[[Obj], list[Any]]) -> Callable[[Obj, datetime], list[Any]]:
    """Name and age with something in between."""

    def cells(obj: Obj, now: datetime) -> list[Any]:
        name, created = _common(obj, now)
        return [name, *cell(obj), created]

    return cells


def _between(*columns: Column) -> tuple[Column, ...]:
    return (NAME, *columns, AGE)


_DATA: Final = Column("Data", description="How many keys it holds.")

PRINTERS: Final[
    dict[tuple[str, str], tuple[tuple[Column, ...], Callable[[Obj, datetime], list[Any]]]]
] = {
    ("", "Pod"): (_POD_COLUMNS, pod_cells),
    ("", "Node"): (_NODE_COLUMNS, _node_cells),
    ("", "Event"): (_EVENT_COLUMNS, _event_cells),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (_CRD_COLUMNS, _crd_cells),
    ("", "Namespace"): (
        _between(Column("Status", description="Active or Terminating.")),
        _simple(lambda obj: [obj.get("status", {}).get("phase", "")]),
    ),
    ("", "ServiceAccount"): (_between(), _simple(lambda _: [])),
    ("", "Secret"): (
        _between(Column("Type", description="What sort of secret it is."), _DATA),
        _simple(lambda obj: [obj.get("type", ""), len(obj.get("data") or {})]),
    ),
    ("", "ConfigMap"): (
        _between(_DATA),
        _simple(lambda obj: [len(obj.get("data") or {}) + len(obj.get("binaryData") or {})]),
    ),
    ("coordination.k8s.io", "Lease"): (
        _between(Column("Holder", description="Who holds it.")),
        _simple(lambda obj: [obj.get("spec", {}).get("holderIdentity") or ""]),
    ),
    ("node.k8s.io", "RuntimeClass"): (
        _between(Column("Handler", description="What the node agent runs it with.")),
        _simple(lambda obj: [obj.get("handler", "")]),
    ),
}
