"""
Objects as rows of a table, which is how ``kubectl get`` asks for them.

Custom resources by the printer columns of their CRD; built-in kinds by columns of their own (``printers``). Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.standalone import jsonpaths
from remuda.standalone.ages import age
from remuda.standalone.objects import metadata
from remuda.standalone.printers import AGE, NAME, PRINTERS, Column

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from remuda.standalone.kinds import PrinterColumn, ResourceKind
    from remuda.standalone.objects import Obj

_META_V1: Final = "meta.k8s.io/v1"


def table(
    kind: ResourceKind,
    objects: list[Obj],
    now: datetime,
    *,
    list_meta: Obj,
    include: str = "Metadata",
) -> Obj:
    """Return a ``Table`` with one row per object. ``include`` says what of each object goes along with its row."""
    printer = _printer(kind)
    return {
        "kind": "Table",
        "apiVersion": _META_V1,
        "metadata": list_meta,
        "columnDefinitions": [_definition(column) for column in printer.columns],
        "rows": [{"cells": printer.cells(obj, now), **_included(obj, include)} for obj in objects],
    }


def _definition(column: Column) -> Obj:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _included(obj: Obj, include: str) -> Obj:
    if include == "None":
        return {}
    if include == "Object":
        return {"object": obj}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": _META_V1, "metadata": metadata(obj)}
    return {"object": partial}


@dataclass(frozen=True, slots=True)
class _Printer:
    columns: tuple[Column, ...]
    cells: Callable[[Obj, datetime], list[Any]]


def _printer(kind: ResourceKind) -> _Printer:
    built_in = PRINTERS.get((kind.group, kind.kind))
    if built_in is not None and kind.schema is None:
        return _Printer(*built_in)
    return _custom(kind.columns)


# --- Custom resources ------------------------------------------------------------------------------------------------


def _custom(columns: tuple[PrinterColumn, ...]) -> _Printer:
    if not columns:
        return _Printer((NAME, AGE), lambda obj, now: [*_name(obj), _age(obj, now)])
    paths = [(column.type, _path(column.json_path)) for column in columns]
    shown = tuple(Column(c.name, c.type, c.description, c.priority, c.format) for c in columns)

    def cells(obj: Obj, now: datetime) -> list[Any]:
        return [*_name(obj), *(_cell(sort, path, obj, now) for sort, path in paths)]

    return _Printer((NAME, *shown), cells)


def _path(text: str) -> jsonpaths.JsonPath | None:
    """Read a column's path. One that we cannot follow leaves its cells empty rather than breaking ``kubectl get``."""
    try:
        return jsonpaths.parse(text)
    except jsonpaths.BadPath:
        return None


def _name(obj: Obj) -> list[str]:
    return [str(metadata(obj).get("name", ""))]


def _age(obj: Obj, now: datetime) -> str:
    return age(metadata(obj).get("creationTimestamp"), now)


def _cell(sort: str, path: jsonpaths.JsonPath | None, obj: Obj, now: datetime) -> Any:  # noqa: ANN401 - JSON
    found = path.find(obj) if path is not None else []
    if not found or found[0] is None:
        return None
    value = found[0]
    match sort:
        case "date":
            return age(value, now) if isinstance(value, str) else None
        case "string":
            return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        case "boolean":
            return value if isinstance(value, bool) else None
        case _:
            return _number(sort, value)


def _number(sort: str, value: Any) -> float | None:  # noqa: ANN401 - JSON
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if sort == "integer" else value
