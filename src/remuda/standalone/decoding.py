"""
Bodies of built-in kinds, read as a typed server reads them: null is absence, and a value of the wrong type is refused.

The types are those of ``remuda.kube.core``: fields that we do not know pass unchecked. What is missing, and whether
values make sense, is for the rules of each kind to say. Custom resources have their schemas instead.
"""

from __future__ import annotations

import re
import string
from base64 import b64decode
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import inspect

from remuda.kube import core
from remuda.kube.meta import ObjectMeta, Part, Resource
from remuda.kube.quantity import parse_quantity
from remuda.kube.times import parse_time
from remuda.model.errors import BadInput
from remuda.standalone.errors import Cause, bad_request, invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.objects import Obj

Json = Any


class _ConfigMap(Resource, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)
    binary_data: dict[str, bytes] = msgspec.field(default_factory=dict)
    immutable: bool | msgspec.UnsetType = msgspec.UNSET


class _NamespaceSpec(Part, frozen=True):
    finalizers: tuple[str, ...] = ()


class _Namespace(core.Namespace, frozen=True):
    spec: _NamespaceSpec = _NamespaceSpec()


class _SchedulingGate(Part, frozen=True):
    name: str = ""


class _PodSpec(core.PodSpec, frozen=True):
    priority: int = 0
    scheduling_gates: tuple[_SchedulingGate, ...] = ()


class _Pod(core.Pod, frozen=True):
    spec: _PodSpec = _PodSpec()


class _EventSeries(Part, frozen=True):
    count: int = 0
    last_observed_time: str | None = None


class _Event(core.Event, frozen=True):
    series: _EventSeries = _EventSeries()


_TYPES: Final = {
    **{
        (kind.group, kind.name): kind.type
        for kind in (
            core.NODE, core.SERVICE_ACCOUNT, core.SECRET, core.LEASE, core.RUNTIME_CLASS,
        )
    },
    ("", "ConfigMap"): _ConfigMap,
    ("", "Event"): _Event,
    ("", "Namespace"): _Namespace,
    ("", "Pod"): _Pod,
}  # fmt: skip

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
"""RFC 3339; Python reads more than that."""

_BLANKS: Final[dict[type[inspect.Type], Json]] = {inspect.StructType: {}, inspect.StrType: ""}

_BASE64: Final = frozenset(string.ascii_letters + string.digits + "+/")

_QUANTITIES: Final = frozenset(
    ("requests", "limits", "capacity", "allocatable", "overhead", "podFixed")
)
"""Maps of quantities, which may be written as numbers."""


_MORE_FIELDS: Final = {
    "ServiceAccount": ("secrets", "imagePullSecrets"),
    "Secret": ("stringData", "immutable"),
    "Event": ("eventTime", "action", "related"),
}
"""What kinds have at their top level beyond what our types hold. Anything else there is dropped."""


class _WrongType(Exception):
    """A value is not of its field's type; the text says it as Go's decoder does."""


def decoded(kind: ResourceKind, obj: Obj) -> Obj:
    """Return a body as a typed server would read it; a wrong type is a BadRequest."""
    try:
        return _read_object(kind, obj, {})
    except _WrongType as wrong:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {wrong}'
        ) from None


def decoded_change(kind: ResourceKind, obj: Obj, old: Obj) -> Obj:
    """Return what a patch has made of ``old``, in the same way; only parts that it does not share are looked at."""
    try:
        _check_identity(kind, obj)
        read = _read_object(kind, obj, old)
    except _WrongType as wrong:
        shown = msgspec.json.encode(msgspec.json.encode(obj).decode()).decode()
        cause = Cause("patch", "FieldValueInvalid", f"Invalid value: {shown}: {wrong}")
        raise invalid("", "", "", [cause]) from None
    read.setdefault("apiVersion", kind.api_version)
    read.setdefault("kind", kind.kind)
    return read


def _check_identity(kind: ResourceKind, obj: Obj) -> None:
    said_kind, said_version = obj.get("kind"), obj.get("apiVersion")
    if said_kind == kind.kind and said_version == kind.api_version:
        return
    if kind.schema is None:
        if said_kind not in {None, kind.kind} or said_version not in {None, kind.api_version}:
            raise _WrongType(f'no kind "{said_kind}" is registered for version "{said_version}"')
    elif said_kind is None or said_version is None:
        raise _WrongType("Object 'Kind' or 'apiVersion' is missing")
    else:
        field = "kind" if said_kind != kind.kind else "apiVersion"
        wanted = kind.kind if field == "kind" else kind.api_version
        message = f'Invalid value: "{obj[field]}": must be {wanted}'
        cause = Cause(field, "FieldValueInvalid", message)
        raise invalid(kind.group, kind.kind, obj["metadata"]["name"], [cause])


def _read_object(kind: ResourceKind, obj: Obj, old: Obj) -> Obj:
    """Read the top level: of custom resources and CRDs only what all kinds share."""
    new = dict(obj)
    for key, value in obj.items():
        if value is not None and value is old.get(key):
            continue
        if key == "metadata":
            new[key] = _read_struct(value or {}, _fields(ObjectMeta), f"{kind.kind}.metadata")
        elif (fields := _fields_of(kind.group, kind.kind)) is None:
            continue
        elif value is not None and key in fields:
            new[key] = _read_part(value, fields[key], f"{kind.kind}.{key}", old.get(key))
        elif value is not None and key in ("kind", "apiVersion", *_MORE_FIELDS.get(kind.kind, ())):
            new[key] = _without_nulls(value)
        else:
            del new[key]
    return new


def _fields_of(group: str, kind: str) -> dict[str, inspect.Type] | None:
    struct = _TYPES.get((group, kind))
    return None if struct is None else _fields(struct)


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    return {field.encode_name: _meant(field.type) for field in described.fields}


def _read_part(value: Json, wanted: inspect.Type, path: str, old: Json) -> Json:
    """Read one part of an object. What it shares with its old self, field by field, has been read before."""
    if not isinstance(old, dict) or not isinstance(value, dict):
        return _read(value, wanted, path)
    if not isinstance(wanted, inspect.StructType):
        return _read(value, wanted, path)
    fields = _fields(wanted.cls)
    read = dict(value)
    for key, item in value.items():
        if item is None:
            del read[key]
        elif item is old.get(key):
            continue
        elif key in fields:
            read[key] = _read(item, fields[key], f"{path}.{key}")
        else:
            read[key] = _without_nulls(item)
    return read


def _read(value: Json, wanted: inspect.Type, path: str) -> Json:
    if isinstance(wanted, inspect.UnionType):
        wanted = _meant(wanted)
    reader = _READERS.get(type(wanted))
    return _without_nulls(value) if reader is None else reader(value, wanted, path)


def _meant(union: inspect.Type) -> inspect.Type:
    """Return what a field holds when it holds something; a real choice of types is left open."""
    if not isinstance(union, inspect.UnionType):
        return union
    types = [t for t in union.types if not isinstance(t, inspect.NoneType)]
    return types[0] if len(types) == 1 else inspect.AnyType()


def _read_struct(value: Json, fields: dict[str, inspect.Type], path: str) -> Json:
    given = _of_type(value, dict, "map[string]interface {}", path)
    return {
        key: _read(item, fields[key], f"{path}.{key}") if key in fields else _without_nulls(item)
        for key, item in given.items()
        if item is not None
    }


def _read_map(value: Json, wanted: inspect.DictType, path: str) -> Json:
    given = _of_type(value, dict, "map[string]string", path)
    is_text = isinstance(wanted.value_type, (inspect.StrType, inspect.BytesType))
    if path.rpartition(".")[2] in _QUANTITIES:
        return {key: _read_quantity(item, path) for key, item in given.items() if item is not None}
    if not is_text:
        return _without_nulls(given)
    return {
        key: "" if item is None else _read(item, wanted.value_type, path)
        for key, item in given.items()
    }


def _read_quantity(value: Json, path: str) -> str:
    """Read a quantity, which may be a bare number: 2 is "2", and 0.5 is "500m"."""
    if isinstance(value, float):
        return f"{round(value * 1000)}m"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = str(_of_type(value, str, "resource.Quantity", path))
    try:
        parse_quantity(text)
    except (BadInput, ValueError):  # what is no quantity, and what has thousands of digits
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise _WrongType(f"quantities must match the regular expression '{pattern}'") from None
    return text


def _read_list(value: Json, wanted: inspect.ListType | inspect.VarTupleType, path: str) -> Json:
    given = _of_type(value, list, "[]interface {}", path)
    # To a typed server, a null among others is an empty one: its rules then say what it lacks.
    blank = _BLANKS.get(type(wanted.item_type))
    return [_read(blank if item is None else item, wanted.item_type, path) for item in given]


def _read_time(value: Json, _: inspect.DateTimeType, path: str) -> Json:
    text = _of_type(value, str, "string", path)
    try:
        understood = _TIME.fullmatch(text) and parse_time(text)
    except (ValueError, OverflowError):
        understood = None
    if not understood:
        layout = "2006-01-02T15:04:05Z07:00"
        raise _WrongType(f'parsing time "{text}" as "{layout}": cannot parse "{text}"')
    return text


def _of_base64(text: str) -> str:
    try:
        b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except ValueError:
        wrong = next((i for i, c in enumerate(text) if c not in _BASE64), len(text))
        raise _WrongType(f"illegal base64 data at input byte {wrong}") from None
    return text


def _of_type(value: Json, wanted: type, go_name: str, path: str) -> Json:
    # A bool is an int to Python and to nobody else.
    if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    found = _JSON_NAMES.get(type(value), "number")
    shown = f"number {value}" if isinstance(value, float) and wanted is int else found
    raise _WrongType(
        f"json: cannot unmarshal {shown} into Go struct field {path} of type {go_name}"
    )


_JSON_NAMES: Final = {str: "string", bool: "bool", dict: "object", list: "array"}


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


_READERS: Final[dict[type[inspect.Type], Callable[[Json, Any, str], Json]]] = {
    inspect.StructType: lambda value, wanted, path: _read_struct(value, _fields(wanted.cls), path),
    inspect.DictType: _read_map,
    inspect.ListType: _read_list,
    inspect.VarTupleType: _read_list,
    inspect.DateTimeType: _read_time,
    inspect.StrType: lambda value, _, path: _of_type(value, str, "string", path),
    inspect.BytesType: lambda value, _, path: _of_base64(_of_type(value, str, "[]uint8", path)),
    inspect.BoolType: lambda value, _, path: _of_type(value, bool, "bool", path),
    inspect.IntType: lambda value, _, path: _of_type(value, int, "int64", path),
}
