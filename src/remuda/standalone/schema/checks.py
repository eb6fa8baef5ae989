"""
Check one object against the value rules of its schema: types, bounds, enums, formats, unique keys.

The sentences are the API server's own, word for word: people search the web for them, and clients match on them.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from datetime import date, datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from remuda.standalone.errors import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from remuda.standalone.schema.nodes import Node

Json = Any

INVALID: Final = "FieldValueInvalid"
ABSENT: Final = object()
"""Stands for an old value that is not there, or cannot be told apart from its neighbours."""


def check(node: Node, value: Json, path: str, old: Json = ABSENT) -> Iterator[Cause]:
    """
    Yield what is wrong with a value.

    A fault that was there before and did not change is tolerated ("ratcheting"): a schema may be tightened without
    locking everyone out of the objects that exist.
    """
    if value is None and node.nullable:
        return
    if old is not ABSENT and unchanged(value, old):
        return
    yield from _type(node, value, path)
    yield from _some_of(node, value, path)
    if isinstance(value, str):
        yield from _string(node, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(node, value, path)
    elif isinstance(value, list):
        yield from _list(node, value, path, old)
    yield from _enum(node, value, path)
    if isinstance(value, dict):
        yield from _object(node, value, path, old)


def unchanged(value: Json, old: Json) -> bool:
    """Compare as JSON: to Python, 1, 1.0 and True are equal."""
    if value is old:
        return True
    if value != old:
        return False
    return isinstance(value, str) or _canonical(value) == _canonical(old)


def _canonical(value: Json) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def show(value: Json) -> str:
    """Print a value as it stands in a message."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _invalid(path: str, value: Json, why: str) -> Cause:
    return Cause(path, INVALID, f"Invalid value: {show(value)}: {path} in body {why}")


def _nowhere(why: str) -> Cause:
    """Spell a fault that names its place only in the sentence."""
    return Cause("<nil>", INVALID, f'Invalid value: "": {why}')


# --- Types -----------------------------------------------------------------------------------------------------------


def _type(node: Node, value: Json, path: str) -> Iterator[Cause]:
    if is_type(node, value):
        return
    wanted = "integer,string" if node.int_or_string else node.type
    found = _type_of(value)
    if node.raw.get("format") and not isinstance(value, str | list):
        # Where a format is set, the API server names formats instead of types, and knows two for values.
        wanted = node.raw["format"]
        found = {int: "int64", float: "float64"}.get(type(value), "")
    yield Cause(
        path,
        "FieldValueTypeInvalid",
        f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"',
    )


def is_type(node: Node, value: Json) -> bool:
    found = _type_of(value)
    if node.int_or_string:
        return found in ("integer", "string")
    return node.type in ("", found) or (node.type == "number" and found == "integer")


_TYPE_NAMES: Final = {
    NoneType: "null", bool: "boolean", str: "string", int: "integer", list: "array", dict: "object",
}  # fmt: skip


def _type_of(value: Json) -> str:
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return _TYPE_NAMES[type(value)]


# --- Scalars ---------------------------------------------------------------------------------------------------------


def _string(node: Node, value: str, path: str) -> Iterator[Cause]:
    bounds = node.raw
    longest, shortest = bounds.get("maxLength"), bounds.get("minLength")
    if longest is not None and len(value) > longest:
        yield Cause(path, "FieldValueTooLong", f"Too long: may not be more than {longest} bytes")
    elif shortest is not None and len(value) < shortest:
        yield _invalid(path, value, f"should be at least {shortest} chars long")
    elif node.pattern is not None and not node.pattern.ask(value, None, has_old=False):
        yield _invalid(path, value, f"should match '{bounds['pattern']}'")
    form = bounds.get("format", "")
    if form in _FORMATS and not _FORMATS[form](value):
        shown = show(value)
        yield Cause(
            path,
            "FieldValueTypeInvalid",
            f"Invalid value: {shown}: {path} in body must be of type {form}: {shown}",
        )


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def parses(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return parses


_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DURATION = re.compile(
    r"[+-]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*)"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")

_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "date-time": lambda text: (
        bool(_DATE_TIME.fullmatch(text)) and _parses(datetime.fromisoformat)(text)
    ),
    "date": _parses(date.fromisoformat),
    "duration": lambda text: bool(_DURATION.fullmatch(text)),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "byte": _parses(lambda text: base64.b64decode(text, validate=True)),
    "uuid": lambda text: bool(_UUID.fullmatch(text)),
}
"""Formats that the API server checks, of those that schemas use. It ignores a format it does not know; so do we."""

_INTEGER_LIMITS: Final = {"int32": 2**31, "int64": 2**63}


def _number(node: Node, value: float, path: str) -> Iterator[Cause]:
    bounds = node.raw
    form = bounds.get("format", "")
    limit = _INTEGER_LIMITS.get(form)
    is_whole = isinstance(value, int) or value.is_integer()
    if (node.type == "integer" and not is_whole) or (limit and not -limit <= value < limit):
        named = f"with format {form}" if limit else "(default format)"
        yield _nowhere(f"Checked value must be of type integer {named} in {path}")
    step, most, least = bounds.get("multipleOf"), bounds.get("maximum"), bounds.get("minimum")
    if step is not None and value % step != 0:
        yield _invalid(path, value, f"should be a multiple of {step}")
    if most is not None:
        yield from _upper(value, most, path, exclusive=bool(bounds.get("exclusiveMaximum")))
    if least is not None:
        yield from _lower(value, least, path, exclusive=bool(bounds.get("exclusiveMinimum")))


def _upper(value: float, most: float, path: str, *, exclusive: bool) -> Iterator[Cause]:
    if value > most or (exclusive and value == most):
        yield _invalid(
            path, value, f"should be less than {'' if exclusive else 'or equal to '}{most}"
        )


def _lower(value: float, least: float, path: str, *, exclusive: bool) -> Iterator[Cause]:
    if value < least or (exclusive and value == least):
        yield _invalid(
            path, value, f"should be greater than {'' if exclusive else 'or equal to '}{least}"
        )


def _enum(node: Node, value: Json, path: str) -> Iterator[Cause]:
    allowed = node.raw.get("enum")
    if allowed is None or any(unchanged(value, one) for one in allowed):
        return
    listed = ", ".join(f'"{one if isinstance(one, str) else show(one)}"' for one in allowed)
    yield Cause(
        path,
        "FieldValueNotSupported",
        f"Unsupported value: {show(value)}: supported values: {listed}",
    )


# --- Lists and objects -----------------------------------------------------------------------------------------------


def _list(node: Node, value: list[Json], path: str, old: Json) -> Iterator[Cause]:
    if node.items is not None:
        for i, item in enumerate(value):
            yield from check(node.items, item, f"{path}[{i}]", old_item(node, item, old))
    most, least = node.raw.get("maxItems"), node.raw.get("minItems")
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)
    if least is not None and len(value) < least:
        yield _invalid(path, len(value), f"should have at least {least} items")


def _too_many(path: str, count: int, most: int) -> Cause:
    items = "item" if most == 1 else "items"
    return Cause(path, "FieldValueTooMany", f"Too many: {count}: must have at most {most} {items}")


def old_item(node: Node, item: Json, old: Json) -> Json:
    """Find what an item of a keyed list was before. Items of other lists have no past."""
    if node.list_type != "map" or not isinstance(old, list) or not isinstance(item, dict):
        return ABSENT
    keys = key_of(node, item)
    return next((o for o in old if isinstance(o, dict) and key_of(node, o) == keys), ABSENT)


def key_of(node: Node, item: dict[str, Json]) -> dict[str, Json]:
    return {key: item[key] for key in node.map_keys if key in item}


def old_property(name: str, old: Json) -> Json:
    return old.get(name, ABSENT) if isinstance(old, dict) else ABSENT


def _object(node: Node, value: dict[str, Json], path: str, old: Json) -> Iterator[Cause]:
    most, least = node.raw.get("maxProperties"), node.raw.get("minProperties")
    if least is not None and len(value) < least:
        yield _invalid(path, len(value), f"should have at least {least} properties")
        return
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)
        return
    prefix = f"{path}." if path else ""
    for key in sorted(value):
        child = node.properties.get(key) or node.additional
        if child is not None:
            yield from check(child, value[key], f"{prefix}{key}", old_property(key, old))
    required = (*node.raw.get("required", ()), *(("apiVersion", "kind") if node.embedded else ()))
    for key in required:
        if key not in value:
            yield Cause(f"{prefix}{key}", "FieldValueRequired", "Required value")


# --- allOf, anyOf, oneOf, not ----------------------------------------------------------------------------------------


def _some_of(node: Node, value: Json, path: str) -> Iterator[Cause]:
    for key, branches in node.some_of.items():
        faults = [tuple(check(branch, value, path)) for branch in branches]
        passed = sum(not found for found in faults)
        if key == "anyOf" and not passed:
            yield _nowhere(f'"{path}" must validate at least one schema (anyOf)')
            yield from faults[0]
        if key == "oneOf" and passed != 1:
            found = f"Found {passed} valid alternatives" if passed else "Found none valid"
            yield _nowhere(f'"{path}" must validate one and only one schema (oneOf). {found}')
            if not passed:
                yield from faults[0]
        if key == "allOf" and passed < len(branches):
            for found_here in faults:
                yield from found_here
            tail = "" if passed else ". None validated"
            yield _nowhere(f'"{path}" must validate all the schemas (allOf){tail}')
        if key == "not" and passed:
            yield _nowhere(f'"{path}" must not validate the schema (not)')


# --- Sets and keyed lists --------------------------------------------------------------------------------------------


def check_unique(node: Node, value: Json, path: str) -> Iterator[Cause]:
    """Yield the items that appear twice in a list that is a set or a map."""
    if not node.any_keyed_lists:
        return
    if isinstance(value, dict):
        prefix = f"{path}." if path else ""
        for key in sorted(value):
            child = node.properties.get(key) or node.additional
            if child is not None:
                yield from check_unique(child, value[key], f"{prefix}{key}")
    if isinstance(value, list) and node.items is not None:
        yield from _duplicates(node, value, path)
        for i, item in enumerate(value):
            yield from check_unique(node.items, item, f"{path}[{i}]")


def _duplicates(node: Node, value: list[Json], path: str) -> Iterator[Cause]:
    if node.list_type == "atomic":
        return
    times: dict[str, int] = {}
    for i, item in enumerate(value):
        if node.list_type == "map" and not isinstance(item, dict):
            continue
        shown = show(key_of(node, item) if node.list_type == "map" else item)
        times[shown] = times.get(shown, 0) + 1
        if times[shown] == 2:  # noqa: PLR2004 - the second time is the news; the third is not
            yield Cause(f"{path}[{i}]", "FieldValueDuplicate", f"Duplicate value: {shown}")
