"""Why a schema is refused, in the API server's sentences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from remuda.standalone.errors import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable


class SchemaFault(Exception):
    """A schema that cannot be used. ``cause`` says where and why, as the API server would."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(f"{cause.field}: {cause.message}")
        self.cause = cause


def required(path: str, why: str) -> SchemaFault:
    return SchemaFault(Cause(path, "FieldValueRequired", f"Required value: {why}"))


def invalid(path: str, value: object, why: str) -> SchemaFault:
    shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return SchemaFault(Cause(path, "FieldValueInvalid", f"Invalid value: {shown}: {why}"))


def unsupported(path: str, value: object, allowed: Iterable[str]) -> SchemaFault:
    listed = ", ".join(f'"{one}"' for one in sorted(allowed))
    message = f"Unsupported value: {json.dumps(value)}: supported values: {listed}"
    return SchemaFault(Cause(path, "FieldValueNotSupported", message))


def forbidden(path: str, why: str) -> SchemaFault:
    return SchemaFault(Cause(path, "FieldValueForbidden", f"Forbidden: {why}"))
