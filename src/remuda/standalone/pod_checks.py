"""
What a Pod's spec can get wrong, in the real server's order and words: all that a pool's template may carry.

Pure. Defaults, admission and what may change later are ``builtin_pods``'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.kube.quantity import parse_quantity
from remuda.standalone.errors import Cause
from remuda.standalone.metadata import (
    forbidden,
    invalid_value,
    label_causes,
    label_fault,
    label_value_fault,
    qualified_fault,
    required,
    subdomain_fault,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.standalone.objects import Obj

_DEADLINE_MAX_S: Final = 2**31 - 1
_WEIGHT_MAX: Final = 100
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def spec_causes(spec: Obj) -> Iterator[Cause]:
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    yield from _volume_causes(volumes)
    if not spec.get("containers"):
        yield required("spec.containers")
    for field in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(field) or ()):
            yield from _container_causes(f"spec.{field}[{at}]", container, volumes)
    yield from _duplicates(spec)
    yield from _one_of("spec.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES)
    yield from label_causes("spec.nodeSelector", spec.get("nodeSelector") or {})
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    yield from _affinity_causes("spec.affinity.nodeAffinity", affinity)
    yield from _gate_causes(spec)
    if (node := spec.get("nodeName")) and (fault := subdomain_fault(node)):
        yield invalid_value("spec.nodeName", node, fault)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _DEADLINE_MAX_S:
        why = f"Invalid value: {deadline}: must be between 1 and {_DEADLINE_MAX_S}, inclusive"
        yield Cause("spec.activeDeadlineSeconds", "FieldValueInvalid", why)
    for at, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_causes(f"spec.tolerations[{at}]", toleration)


def _volume_causes(names: list[str]) -> Iterator[Cause]:
    for at, name in enumerate(names):
        where = f"spec.volumes[{at}].name"
        if not name:
            yield required(where)
        elif fault := label_fault(name):
            yield invalid_value(where, name, fault)
        if name and name in names[:at]:
            yield _duplicate(where, name)


# --- Containers -------------------------------------------------------------------------------------------------------


def _container_causes(where: str, container: Obj, volumes: list[str]) -> Iterator[Cause]:
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        yield required(f"{where}.name")
    elif fault := label_fault(name):
        yield invalid_value(f"{where}.name", name, fault)
    if not image:
        yield required(f"{where}.image")
    elif image != image.strip():
        yield invalid_value(f"{where}.image", image, "must not have leading or trailing whitespace")
    yield from _env_causes(f"{where}.env", container.get("env") or [])
    yield from _mount_causes(f"{where}.volumeMounts", container.get("volumeMounts") or [], volumes)
    yield from _one_of(f"{where}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES)
    yield from _resource_causes(f"{where}.resources", container["resources"])


def _env_causes(where: str, variables: list[Obj]) -> Iterator[Cause]:
    for at, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            yield required(f"{where}[{at}].name")
        elif "=" in name or not (name.isascii() and name.isprintable()):
            why = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            yield invalid_value(f"{where}[{at}].name", name, why)


def _mount_causes(where: str, mounts: list[Obj], volumes: list[str]) -> Iterator[Cause]:
    paths: set[str] = set()
    for at, mount in enumerate(mounts):
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{where}[{at}].name")
        elif name not in volumes:
            yield Cause(f"{where}[{at}].name", "FieldValueNotFound", f'Not found: "{name}"')
        if not path:
            yield required(f"{where}[{at}].mountPath")
        elif path in paths:
            yield invalid_value(f"{where}[{at}].mountPath", path, "must be unique")
        paths.add(path)


def _resource_causes(where: str, resources: Obj) -> Iterator[Cause]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for resource, amount in amounts.items():
            yield from _amount_causes(f"{where}.{field}[{resource}]", resource, amount)
    for resource, asked in requests.items():
        extended = is_extended(resource)
        if resource not in limits:
            if extended:
                why = "Limit must be set for non overcommitable resources"
                yield required(f"{where}.limits", why)
            continue
        request, limit = parse_quantity(asked), parse_quantity(limits[resource])
        if extended and request != limit:
            why = f"must be equal to {resource} limit of {limits[resource]}"
            yield invalid_value(f"{where}.requests", asked, why)
        elif request > limit:
            why = f"must be less than or equal to {resource} limit of {limits[resource]}"
            yield invalid_value(f"{where}.requests", asked, why)


def _amount_causes(where: str, resource: str, amount: str) -> Iterator[Cause]:
    if "/" not in resource and resource not in _STANDARD and not resource.startswith("hugepages-"):
        yield invalid_value(where, resource, "must be a standard resource type or fully qualified")
        yield invalid_value(where, resource, "must be a standard resource for containers")
    quantity = parse_quantity(amount)
    if quantity.amount < 0:
        yield invalid_value(where, str(quantity), "must be greater than or equal to 0")
    elif is_extended(resource) and quantity.amount.denominator != 1:
        yield invalid_value(where, str(quantity), "must be an integer")


def is_extended(resource: str) -> bool:
    """Tell resources that cannot be overcommitted: those of a domain that is not Kubernetes' own."""
    domain, slash, _ = resource.rpartition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def _duplicates(spec: Obj) -> Iterator[Cause]:
    seen = {c.get("name", "") for c in spec.get("containers") or ()}
    for at, container in enumerate(spec.get("initContainers") or ()):
        name = container.get("name", "")
        if name in seen:
            yield _duplicate(f"spec.initContainers[{at}].name", name)
        seen.add(name)
    names = [c.get("name", "") for c in spec.get("containers") or ()]
    for at, name in enumerate(names):
        if name in names[:at]:
            yield _duplicate(f"spec.containers[{at}].name", name)


# --- Where it may run -------------------------------------------------------------------------------------------------


def _affinity_causes(where: str, affinity: Obj) -> Iterator[Cause]:
    needed = affinity.get(_REQUIRED)
    if needed is not None:
        at = f"{where}.{_REQUIRED}.nodeSelectorTerms"
        if not needed.get("nodeSelectorTerms"):
            yield required(at, "must have at least one node selector term")
        for n, term in enumerate(needed.get("nodeSelectorTerms") or ()):
            yield from _term_causes(f"{at}[{n}]", term)
    for n, wish in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{where}.{_PREFERRED}[{n}]"
        weight = wish.get("weight", 0)
        if not 1 <= weight <= _WEIGHT_MAX:
            why = f"Invalid value: {weight}: must be in the range 1-{_WEIGHT_MAX}"
            yield Cause(f"{at}.weight", "FieldValueInvalid", why)
        yield from _term_causes(f"{at}.preference", wish.get("preference") or {})


def _term_causes(where: str, term: Obj) -> Iterator[Cause]:
    for n, expression in enumerate(term.get("matchExpressions") or ()):
        at = f"{where}.matchExpressions[{n}]"
        values = expression.get("values") or []
        match expression.get("operator", ""):
            case "In" | "NotIn" if not values:
                why = "must be specified when `operator` is 'In' or 'NotIn'"
                yield required(f"{at}.values", why)
            case "Exists" | "DoesNotExist" if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{at}.values", why)
            case "Gt" | "Lt" if len(values) != 1:
                why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield required(f"{at}.values", why)
            case "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt":
                pass
            case unknown:
                yield invalid_value(f"{at}.operator", unknown, "not a valid selector operator")
        if fault := qualified_fault(expression.get("key", "")):
            yield invalid_value(f"{at}.key", expression.get("key", ""), fault)


def _toleration_causes(where: str, toleration: Obj) -> Iterator[Cause]:
    key, value = toleration.get("key") or "", toleration.get("value") or ""
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect") or ""
    if key and (fault := qualified_fault(key)):
        yield invalid_value(f"{where}.key", key, fault)
    if not key and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid_value(f"{where}.operator", operator, why)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid_value(f"{where}.effect", effect, why)
    if operator == "Exists" and value:
        yield invalid_value(
            f"{where}.operator", value, "value must be empty when `operator` is 'Exists'"
        )
    elif operator == "Equal" and (fault := label_value_fault(value)):
        yield invalid_value(f"{where}.operator", value, fault)
    yield from _one_of(f"{where}.operator", operator, ("Equal", "Exists"))
    if effect:
        yield from _one_of(f"{where}.effect", effect, _EFFECTS)


def _gate_causes(spec: Obj) -> Iterator[Cause]:
    names = [gate.get("name", "") for gate in spec.get("schedulingGates") or ()]
    for at, name in enumerate(names):
        if fault := qualified_fault(name):
            yield invalid_value(f"spec.schedulingGates[{at}]", name, fault)
        if name in names[:at]:
            yield _duplicate(f"spec.schedulingGates[{at}]", name)
    if names and spec.get("nodeName"):
        yield forbidden(
            "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
        )


def _one_of(where: str, value: str, supported: tuple[str, ...]) -> Iterator[Cause]:
    if value not in supported:
        listed = ", ".join(f'"{choice}"' for choice in supported)
        why = f'Unsupported value: "{value}": supported values: {listed}'
        yield Cause(where, "FieldValueNotSupported", why)


def _duplicate(where: str, name: str) -> Cause:
    return Cause(where, "FieldValueDuplicate", f'Duplicate value: "{name}"')
