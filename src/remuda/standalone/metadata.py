"""
What the API server does to ``metadata`` on every write, and what it refuses there. The same for all kinds.

Functions take objects whose ``metadata`` the caller may change; everything below it is shared and is not changed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.kube.times import whole_seconds
from remuda.standalone.errors import Cause, bad_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.objects import Obj

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DNS_LABEL = re.compile(_LABEL)
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN_LENGTH_MAX, _LABEL_LENGTH_MAX, _NAME_PART_LENGTH_MAX = 253, 63, 63
_ANNOTATIONS_SIZE_MAX = 256 * 1024
_GENERATED_BASE_LENGTH_MAX = 58
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_ONLY_SERVER = ("managedFields", "selfLink")
_OMITTED_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences")
_KEPT = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


class _Owner(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class _Meta(msgspec.Struct, rename="camel"):
    """The types of what a client may send in ``metadata``."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[_Owner] | None = None


def time_text(moment: datetime) -> str:
    """Spell a ``Time``."""
    return whole_seconds(moment).strftime("%Y-%m-%dT%H:%M:%SZ")


def go_quote(text: str) -> str:
    """Quote as Go's %q would, in messages that clients compare."""
    return json.dumps(text, ensure_ascii=False)


def check_shape(kind: ResourceKind, meta: Any) -> None:  # noqa: ANN401 - JSON
    """Refuse metadata whose values are of the wrong type (400, as a failed decode)."""
    try:
        msgspec.convert(meta, _Meta)
    except msgspec.ValidationError as error:
        where = f'{kind.kind} in version "{kind.version}"'
        raise bad_request(
            f"{where} cannot be handled as a {kind.kind}: metadata: {error}"
        ) from error


def tidy(meta: dict[str, Any]) -> None:
    """Drop what only a server writes, and what the server does not show when it is empty."""
    for key in _ONLY_SERVER:
        meta.pop(key, None)
    for key in _OMITTED_WHEN_EMPTY:
        if key in meta and not meta[key]:
            del meta[key]


def generated_name(base: str, suffix: str) -> str:
    return base[:_GENERATED_BASE_LENGTH_MAX] + suffix


def stamp_new(meta: dict[str, Any], *, uid: str, now: datetime, generation: bool) -> None:
    """Write what a new object gets from the server, whatever the client sent."""
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        meta.pop(key, None)
    tidy(meta)
    meta["uid"] = uid
    meta["creationTimestamp"] = time_text(now)
    if generation:
        meta["generation"] = 1


def carry_over(meta: dict[str, Any], old: dict[str, Any]) -> None:
    """Keep what an update may not touch."""
    given_uid = meta.get("uid")
    for key in _KEPT:
        if key in old:
            meta[key] = old[key]
        else:
            meta.pop(key, None)
    if given_uid:
        meta["uid"] = given_uid  # refused by causes_of_update if it is another one
    tidy(meta)
    meta["resourceVersion"] = old["resourceVersion"]


# --- What is refused ---------------------------------------------------------------------------------------------


def subdomain_fault(name: str) -> str | None:
    """Say why ``name`` is no DNS subdomain, as most names must be."""
    if len(name) > _SUBDOMAIN_LENGTH_MAX:
        return f"must be no more than {_SUBDOMAIN_LENGTH_MAX} characters"
    if _SUBDOMAIN.fullmatch(name):
        return None
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


def label_fault(name: str) -> str | None:
    """Say why ``name`` is no DNS label, as a Namespace's must be."""
    if "." in name:
        return "must not contain dots"
    if len(name) > _LABEL_LENGTH_MAX:
        return f"must be no more than {_LABEL_LENGTH_MAX} characters"
    if _DNS_LABEL.fullmatch(name):
        return None
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
        "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )


def invalid_value(field: str, value: str, why: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {go_quote(value)}: {why}")


def required(field: str, why: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def forbidden(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def causes_of(meta: dict[str, Any], *, core: bool) -> Iterator[Cause]:
    """Check labels, annotations, finalizers and owners. ``core`` kinds take no finalizer of an unknown short name."""
    yield from label_causes("metadata.labels", meta.get("labels") or {})
    yield from _annotation_causes(meta.get("annotations") or {})
    for at, finalizer in enumerate(meta.get("finalizers") or ()):
        where = f"metadata.finalizers[{at}]"
        if fault := qualified_fault(finalizer):
            yield invalid_value(where, finalizer, fault)
        elif core and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(where, finalizer, why)
    yield from _owner_causes(meta.get("ownerReferences") or [])


def label_causes(field: str, labels: dict[str, str]) -> Iterator[Cause]:
    for key, value in labels.items():
        if fault := qualified_fault(key):
            yield invalid_value(field, key, fault)
        if fault := label_value_fault(value):
            yield invalid_value(field, value, fault)


def label_value_fault(value: str) -> str | None:
    if len(value) > _NAME_PART_LENGTH_MAX:
        return "must be no more than 63 bytes"
    if not value or _QUALIFIED.fullmatch(value):
        return None
    return (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
        "must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
        "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    )


def _annotation_causes(annotations: dict[str, str]) -> Iterator[Cause]:
    for key in annotations:
        if fault := qualified_fault(key.lower()):
            yield invalid_value("metadata.annotations", key, fault)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_SIZE_MAX:
        yield Cause(
            "metadata.annotations",
            "FieldValueTooLong",
            f"Too long: may not be more than {_ANNOTATIONS_SIZE_MAX} bytes",
        )


def qualified_fault(name: str) -> str | None:
    prefix, slash, local = name.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if slash and (fault := subdomain_fault(prefix)):
        return f"prefix part {fault}"
    if not local:
        return "name part must be non-empty"
    if len(local) > _NAME_PART_LENGTH_MAX:
        return "name part must be no more than 63 bytes"
    if _QUALIFIED.fullmatch(local):
        return None
    return (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )


def _owner_causes(owners: list[dict[str, Any]]) -> Iterator[Cause]:
    for at, owner in enumerate(owners):
        where = f"metadata.ownerReferences[{at}]"
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                yield required(f"{where}.{key}", "must not be empty")
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        names = " and ".join(
            f"{owner.get('kind')}/{owner.get('name')}" for owner in controllers[:2]
        )
        yield Cause(
            "metadata.ownerReferences",
            "FieldValueInvalid",
            "Invalid value: Only one reference can have Controller set to true. "
            f'Found "true" in references for {names}',
        )


def causes_of_update(meta: dict[str, Any], old: dict[str, Any], *, core: bool) -> Iterator[Cause]:
    """Check what may not change, and what changed."""
    if meta.get("uid") != old["uid"]:
        yield invalid_value("metadata.uid", str(meta.get("uid", "")), "field is immutable")
    if "deletionTimestamp" in old:
        known = old.get("finalizers") or ()
        added = [one for one in meta.get("finalizers") or () if one not in known]
        if added:
            spelled = ", ".join(go_quote(one) for one in added)
            yield forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{spelled}}}",
            )
    if any(meta.get(key) != old.get(key) for key in _OMITTED_WHEN_EMPTY):
        yield from causes_of(meta, core=core)


def marked_for_deletion(obj: Obj, *, at: str, grace_s: int) -> Obj:
    """Return the object with a deletion timestamp; a generation, where there is one, counts that as a change."""
    meta = obj["metadata"] | {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace_s}
    if "generation" in meta and "deletionTimestamp" not in obj["metadata"]:
        meta["generation"] += 1
    return obj | {"metadata": meta}
