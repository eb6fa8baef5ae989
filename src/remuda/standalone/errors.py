"""Refusals, as the API server spells them: a ``Status`` object with code, reason, message and causes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault in an object: where (``spec.replicas``), which sort (``FieldValueInvalid``), and a sentence."""

    field: str
    reason: str
    message: str


class StatusError(Exception):
    """A request that is refused. ``status()`` is the answer's body."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:  # noqa: ANN401 - JSON
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details
        self.list_meta: dict[str, Any] = {}
        """``metadata`` of the Status: an expired page carries a token to go on with."""

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_meta,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = {key: value for key, value in self.details.items() if value}
        return body | {"code": self.code}


def not_found(group: str, plural: str, name: str) -> StatusError:
    resource = f"{plural}.{group}" if group else plural
    return StatusError(
        404, "NotFound", f'{resource} "{name}" not found', name=name, group=group, kind=plural
    )


def already_exists(group: str, plural: str, name: str, *, ending: bool = False) -> StatusError:
    resource = f"{plural}.{group}" if group else plural
    why = "object is being deleted: " if ending else ""
    return StatusError(
        409,
        "AlreadyExists",
        f'{why}{resource} "{name}" already exists',
        name=name,
        group=group,
        kind=plural,
    )


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    resource = f"{plural}.{group}" if group else plural
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, name=name, group=group, kind=plural)


def invalid(group: str, kind: str, name: str, causes: Iterable[Cause]) -> StatusError:
    """Spell a 422: ``Kind.group "name" is invalid: [field: message, field: message]``."""
    found = tuple(causes)
    sentences = [f"{cause.field}: {cause.message}" for cause in found]
    joined = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    qualified = f"{kind}.{group}" if group else kind
    return StatusError(
        422,
        "Invalid",
        f'{qualified} "{name}" is invalid: {joined}',
        name=name,
        group=group,
        kind=kind,
        causes=[{"reason": c.reason, "message": c.message, "field": c.field} for c in found],
    )


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def unsupported_media_type(message: str) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", message)


def unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)
