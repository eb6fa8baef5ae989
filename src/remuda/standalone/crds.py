"""
CustomResourceDefinitions: what a new one must be, which kind it adds, and what its status says.

One served version per CRD: converting between versions is left to a full Kubernetes API server, and said so.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from remuda.kube.times import whole_seconds
from remuda.standalone.errors import Cause
from remuda.standalone.kinds import PrinterColumn, ResourceKind, ScalePaths
from remuda.standalone.schema import SchemaFault, StructuralSchema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from remuda.standalone.objects import Obj

_SCOPES: Final = ("Cluster", "Namespaced")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SCHEMA_PATH: Final = "spec.validation.openAPIV3Schema"
"""Where the API server finds a schema if the CRD has one version, as ours must."""


def defaulted(crd: Obj) -> Obj:
    """Fill in the names that follow from others."""
    spec = crd.get("spec", {})
    names = spec.get("names", {})
    kind = names.get("kind", "")
    implied = {"singular": kind.lower(), "listKind": f"{kind}List"} if kind else {}
    return crd | {"spec": {"conversion": {"strategy": "None"}, **spec, "names": implied | names}}


def validate(crd: Obj) -> tuple[Cause, ...]:
    """Say what is wrong with a CRD. Every schema and every rule is compiled: what cannot be kept is refused."""
    spec = crd.get("spec", {})
    found = [*_check_names(crd, spec), *_check_versions(spec)]
    return tuple(found) if found else tuple(_check_version(spec["versions"][0]))


def kind_from_crd(crd: Obj) -> ResourceKind:
    """Return the kind that a valid CRD adds."""
    spec = crd["spec"]
    version = _storage_version(spec)
    names = spec["names"]
    subresources = version.get("subresources", {})
    return ResourceKind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        subresources=tuple(name for name in ("status", "scale") if name in subresources),
        columns=_columns(version),
        schema=version["schema"]["openAPIV3Schema"],
        scale=_scale(subresources.get("scale")),
    )


def established(crd: Obj, now: datetime) -> Obj:
    """Return the status of a CRD that is served. Conditions that held before keep their time."""
    spec = crd["spec"]
    before = {c["type"]: c for c in crd.get("status", {}).get("conditions", ())}
    moment = whole_seconds(now).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    return {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "lastTransitionTime": before.get(kind, {}).get("lastTransitionTime", moment),
                "reason": reason,
                "message": message,
            }
            for kind, reason, message in conditions
        ],
        "acceptedNames": dict(spec["names"]),
        "storedVersions": [_storage_version(spec)["name"]],
    }


# --- Checks ----------------------------------------------------------------------------------------------------------


def _check_names(crd: Obj, spec: Obj) -> Iterator[Cause]:
    names = spec.get("names", {})
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    name = crd.get("metadata", {}).get("name", "")
    if name != wanted:
        yield _invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not spec.get("group"):
        yield _required("spec.group")
    if spec.get("scope") not in _SCOPES:
        listed = ", ".join(f'"{scope}"' for scope in _SCOPES)
        message = (
            f"Unsupported value: {json.dumps(spec.get('scope', ''))}: supported values: {listed}"
        )
        yield Cause("spec.scope", "FieldValueNotSupported", message)
    for key in ("plural", "singular", "kind", "listKind"):
        if not names.get(key):
            yield _required(f"spec.names.{key}")
        elif not _DNS_LABEL.fullmatch(names[key].lower()):
            yield _invalid(f"spec.names.{key}", names[key], "must be a DNS label")
    if spec.get("preserveUnknownFields"):
        yield _invalid(
            "spec.preserveUnknownFields",
            value=True,
            why="cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema"
            " instead",
        )


def _check_versions(spec: Obj) -> Iterator[Cause]:
    versions = spec.get("versions", [])
    names = [version.get("name", "") for version in versions]
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield _invalid(
            "spec.versions", names, "must have exactly one version marked as storage version"
        )
    elif len(versions) > 1:
        why = (
            "this control plane serves one version per CRD and converts between none; leave one, or use a full"
            " Kubernetes API server"
        )
        yield Cause("spec.versions", "FieldValueForbidden", f"Forbidden: {why}")
    elif not versions[0].get("served"):
        why = "this control plane serves the one version that a CRD has; served must be true"
        yield Cause("spec.versions[0].served", "FieldValueForbidden", f"Forbidden: {why}")
    for i, version in enumerate(versions):
        if not version.get("schema", {}).get("openAPIV3Schema"):
            yield _required(f"spec.versions[{i}].schema.openAPIV3Schema")
        if not _DNS_LABEL.fullmatch(version.get("name", "")):
            yield _invalid(
                f"spec.versions[{i}].name", version.get("name", ""), "must be a DNS label"
            )


def _check_version(version: Obj) -> Iterator[Cause]:
    for i, column in enumerate(version.get("additionalPrinterColumns", ())):
        yield from _check_column(column, f"spec.additionalPrinterColumns[{i}]")
    scale = version.get("subresources", {}).get("scale")
    if scale is not None:
        yield from _check_scale(scale)
    try:
        StructuralSchema(version["schema"]["openAPIV3Schema"], _SCHEMA_PATH)
    except SchemaFault as fault:
        yield fault.cause


def _check_column(column: Obj, path: str) -> Iterator[Cause]:
    if column.get("type") not in _COLUMN_TYPES:
        why = f"must be one of {','.join(_COLUMN_TYPES)}"
        yield _invalid(f"{path}.type", column.get("type", ""), why)
    if not column.get("jsonPath", "").startswith("."):
        why = "must be a simple json path starting with ."
        yield _invalid(f"{path}.JSONPath", column.get("jsonPath", ""), why)


def _check_scale(scale: Obj) -> Iterator[Cause]:
    for key, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        path = scale.get(key, "")
        if not path:
            yield _required(f"spec.subresources.scale.{key}")
        elif not path.startswith(f"{root}."):
            why = f"should be a json path under {root}"
            yield _invalid(f"spec.subresources.scale.{key}", path, why)


def _invalid(field: str, value: Any, why: str) -> Cause:  # noqa: ANN401 - JSON
    return Cause(field, "FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {why}")


def _required(field: str) -> Cause:
    return Cause(field, "FieldValueRequired", "Required value")


# --- Reading ---------------------------------------------------------------------------------------------------------


def _storage_version(spec: Obj) -> Obj:
    found: Obj = next(version for version in spec["versions"] if version.get("storage"))
    return found


def _columns(version: Obj) -> tuple[PrinterColumn, ...]:
    return tuple(
        PrinterColumn(
            name=column["name"],
            type=column["type"],
            json_path=column["jsonPath"],
            description=column.get("description", ""),
            priority=column.get("priority", 0),
            format=column.get("format", ""),
        )
        for column in version.get("additionalPrinterColumns", ())
    )


def _scale(scale: Obj | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(
        spec_replicas=scale["specReplicasPath"],
        status_replicas=scale["statusReplicasPath"],
        label_selector=scale.get("labelSelectorPath", ""),
    )
