"""
The rules of the built-in kinds but for Pods (``builtin_pods``): defaults, what may not change, what is refused.

There is no schema for these kinds here: a field that we do not know is kept as it is, where the real server would
drop it. What our own code writes goes through typed structs, and the contract suite compares both servers.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING, Any

from remuda.kube.times import micro_time, parse_time
from remuda.standalone import builtin_pods
from remuda.standalone.custom import CRD_RULES, CRDS
from remuda.standalone.errors import Cause, bad_request
from remuda.standalone.metadata import invalid_value, label_fault, qualified_fault, required
from remuda.standalone.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.standalone.objects import Obj
    from remuda.standalone.rules import Context
    from remuda.standalone.store import KindKey

NAMESPACE_FINALIZER = "kubernetes"
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_SECRET_TYPE_DEFAULT = "Opaque"  # noqa: S105 - a type's name


# --- Namespace --------------------------------------------------------------------------------------------------------


def _new_namespace(namespace: Obj, _: Context) -> None:
    meta = namespace["metadata"]
    labels = meta.get("labels") or {}
    if name := meta.get("name"):  # without one it will be refused
        meta["labels"] = labels | {"kubernetes.io/metadata.name": name}
    finalizers = (namespace.get("spec") or {}).get("finalizers") or []
    if NAMESPACE_FINALIZER not in finalizers:
        finalizers = [*finalizers, NAMESPACE_FINALIZER]
    namespace["spec"] = {"finalizers": finalizers}
    namespace["status"] = {"phase": "Active"}


def _namespace_causes(namespace: Obj) -> Iterator[Cause]:
    for finalizer in namespace["spec"]["finalizers"]:
        if fault := qualified_fault(finalizer):
            yield invalid_value("spec.finalizers", finalizer, fault)


def _changed_namespace(namespace: Obj, old: Obj, _: Context) -> None:
    namespace["spec"] = old["spec"]  # only the finalize subresource may change it
    meta = namespace["metadata"]
    meta["labels"] = (meta.get("labels") or {}) | {"kubernetes.io/metadata.name": meta["name"]}


# --- Node -------------------------------------------------------------------------------------------------------------


def _new_node(node: Obj, _: Context) -> None:
    """Taint a new node until its conditions say that it is ready, as the real server's admission does."""
    spec = node.get("spec") or {}
    taints = spec.get("taints") or []
    if not any(
        t.get("key") == _NOT_READY["key"] and t.get("effect") == _NOT_READY["effect"]
        for t in taints
    ):
        taints = [*taints, dict(_NOT_READY)]
    node["spec"] = spec | {"taints": taints}
    status = node.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        status = status | {"allocatable": status["capacity"]}
    node["status"] = status


def _node_causes(node: Obj) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for at, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        where = f"metadata.taints[{at}]"  # the real server's words, though they are in the spec
        if not taint.get("key"):
            yield required(f"{where}.key")
        if taint.get("effect") not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
            supported = 'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
            yield Cause(
                f"{where}.effect",
                "FieldValueNotSupported",
                f'Unsupported value: "{taint.get("effect", "")}": {supported}',
            )
        identity = str(taint.get("key")), str(taint.get("effect"))
        if identity in seen:
            yield Cause(where, "FieldValueDuplicate", f"Duplicate value: {identity}")
        seen.add(identity)


def _changed_node_causes(node: Obj, old: Obj) -> Iterator[Cause]:
    if node.get("spec") is not old.get("spec"):
        yield from _node_causes(node)
    before = (old.get("spec") or {}).get("providerID")
    after = (node.get("spec") or {}).get("providerID")
    if before and after != before:
        why = "node updates may only change labels, taints, or capacity (or configSource, if the DynamicKubeletConfig"
        yield Cause(
            "spec.providerID", "FieldValueForbidden", f"Forbidden: {why} feature gate is enabled)"
        )


# --- Secret -----------------------------------------------------------------------------------------------------------


def _secret(secret: Obj, _: Context) -> None:
    if secret.get("stringData"):
        plain = {
            key: b64encode(value.encode()).decode() for key, value in secret["stringData"].items()
        }
        secret["data"] = (secret.get("data") or {}) | plain
    secret.pop("stringData", None)
    _drop_empty_data(secret)
    secret.setdefault("type", _SECRET_TYPE_DEFAULT)
    for key, value in (secret.get("data") or {}).items():
        try:
            b64decode(value, validate=True)
        except (NotBase64, TypeError) as error:
            raise bad_request(
                'Secret in version "v1" cannot be handled as a Secret: illegal base64 data in '
                f'data["{key}"]: {error}'
            ) from error


def _changed_secret_causes(secret: Obj, old: Obj) -> Iterator[Cause]:
    if secret.get("type") != old.get("type"):
        yield invalid_value("type", str(secret.get("type", "")), "field is immutable")
    yield from _changed_data_causes(secret, old)


def _changed_data_causes(obj: Obj, old: Obj) -> Iterator[Cause]:
    """Of Secrets and ConfigMaps, which may have been declared immutable."""
    if obj.get("data") is not old.get("data"):
        yield from _data_causes(obj)
    if not old.get("immutable"):
        return
    if not obj.get("immutable"):
        why = "field is immutable when `immutable` is set"
        yield Cause("immutable", "FieldValueForbidden", f"Forbidden: {why}")
    for key in ("data", "binaryData"):
        if obj.get(key) != old.get(key):
            why = "field is immutable when `immutable` is set"
            yield Cause(key, "FieldValueForbidden", f"Forbidden: {why}")


def _config_map(config: Obj, _: Context) -> None:
    _drop_empty_data(config)


def _drop_empty_data(obj: Obj) -> None:
    for key in ("data", "binaryData"):
        if key in obj and not obj[key]:
            del obj[key]


def _data_causes(obj: Obj) -> Iterator[Cause]:
    for field in ("data", "binaryData"):
        for key in obj.get(field) or ():
            if not _CONFIG_KEY.fullmatch(key):
                yield invalid_value(
                    f"{field}[{key}]",
                    key,
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
                )


# --- Lease, Event, RuntimeClass ---------------------------------------------------------------------------------------


def _check_micro_times(kind: str, holder: Mapping[str, Any], *fields: str) -> None:
    """Refuse a MicroTime that has not exactly six digits: it does not survive the real server's decoding."""
    for field in fields:
        value = holder.get(field)
        if value is not None and not _is_micro_time(value):
            raise bad_request(
                f'{kind} in version "v1" cannot be handled as a {kind}: parsing time "{value}" as '
                '"2006-01-02T15:04:05.000000Z07:00": cannot parse it'
            )


def _is_micro_time(value: Any) -> bool:  # noqa: ANN401 - JSON
    if not isinstance(value, str):
        return False
    try:
        # Nearly all are spelled as we do, and to spell it once more is quicker than the pattern.
        if value.endswith("Z") and micro_time(parse_time(value)) == value:
            return True
        return bool(_MICRO_TIME.fullmatch(value) and parse_time(value))
    except (ValueError, OverflowError):  # the 40th of May
        return False


def _lease(lease: Obj, _: Context) -> None:
    _check_micro_times("Lease", lease.get("spec") or {}, "acquireTime", "renewTime")


def _lease_causes(lease: Obj) -> Iterator[Cause]:
    spec = lease.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield Cause(
            "spec.leaseDurationSeconds",
            "FieldValueInvalid",
            f"Invalid value: {duration}: must be greater than 0",
        )
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield Cause(
            "spec.leaseTransitions",
            "FieldValueInvalid",
            f"Invalid value: {transitions}: must be greater than or equal to 0",
        )


def _event(event: Obj, _: Context) -> None:
    _check_micro_times("Event", event, "eventTime")
    _check_micro_times("Event", event.get("series") or {}, "lastObservedTime")
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")


def _event_causes(event: Obj) -> Iterator[Cause]:
    """Check that an Event lives where the object does that it is about (``default`` for cluster-wide ones)."""
    namespace = event["metadata"].get("namespace", "")
    about = (event.get("involvedObject") or {}).get("namespace", "")
    if (about or "default") != namespace and not (not about and namespace == "kube-system"):
        yield invalid_value("involvedObject.namespace", about, "does not match event.namespace")


def _runtime_class_causes(runtime: Obj) -> Iterator[Cause]:
    handler = runtime.get("handler") or ""
    if fault := label_fault(handler):
        yield invalid_value("handler", handler, fault)


def _changed_runtime_class_causes(runtime: Obj, old: Obj) -> Iterator[Cause]:
    if runtime.get("handler") != old.get("handler"):
        yield invalid_value("handler", str(runtime.get("handler", "")), "field is immutable")


RULES: Mapping[KindKey, Rules] = {
    ("", "pods"): Rules(
        prepare_create=builtin_pods.prepare_create,
        prepare_update=builtin_pods.prepare_update,
        create_causes=builtin_pods.create_causes,
        update_causes=builtin_pods.update_causes,
        has_generation=True,
        returns_deleted=True,
        grace_period_s=builtin_pods.grace_period_s,
    ),
    ("", "namespaces"): Rules(
        prepare_create=_new_namespace,
        create_causes=_namespace_causes,
        prepare_update=_changed_namespace,
        name_fault=label_fault,
        returns_deleted=True,
    ),
    ("", "nodes"): Rules(
        prepare_create=_new_node, create_causes=_node_causes, update_causes=_changed_node_causes
    ),
    ("", "serviceaccounts"): Rules(returns_deleted=True),
    ("", "secrets"): Rules(
        prepare_create=_secret,
        prepare_update=lambda secret, _, context: _secret(secret, context),
        create_causes=_data_causes,
        update_causes=_changed_secret_causes,
    ),
    ("", "configmaps"): Rules(
        prepare_create=_config_map,
        prepare_update=lambda config, _, context: _config_map(config, context),
        create_causes=_data_causes,
        update_causes=_changed_data_causes,
    ),
    ("", "events"): Rules(
        prepare_create=_event,
        prepare_update=lambda event, _, context: _event(event, context),
        create_causes=_event_causes,
        create_on_update=True,
    ),
    ("coordination.k8s.io", "leases"): Rules(
        prepare_create=_lease,
        prepare_update=lambda lease, _, context: _lease(lease, context),
        create_causes=_lease_causes,
        update_causes=lambda lease, _: _lease_causes(lease),
        needs_version_on_update=True,
        create_on_update=True,
    ),
    ("node.k8s.io", "runtimeclasses"): Rules(
        create_causes=_runtime_class_causes,
        update_causes=_changed_runtime_class_causes,
        needs_version_on_update=True,
    ),
    CRDS: CRD_RULES,
}
