"""What the API server said no with, as the typed errors of the port. Pure; texts never carry what was sent."""

from __future__ import annotations

import msgspec

from remuda.ports.kube import (
    AlreadyExists,
    Conflict,
    Expired,
    Invalid,
    KubeError,
    NotFound,
    Refused,
    Throttled,
    TimedOut,
    Unavailable,
)

_WHY_MAX_CHARS = 1000
_RETRY_AFTER_MAX_S = 300.0  # whatever a server asks for: what waits for ever is lost

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _REQUEST_TIMEOUT = 401, 403, 404, 408
_CONFLICT, _GONE, _UNPROCESSABLE, _TOO_MANY = 409, 410, 422, 429
_INTERNAL, _GATEWAY_TIMEOUT = 500, 504
_REDIRECTS, _SERVER_FAULTS = range(300, 400), range(500, 600)


class Details(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    causes: tuple[dict[str, str], ...] = ()
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a refusal, and the object of a watch's ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


def parse_status(code: int, body: bytes) -> Status:
    """
    Read the body of an answer with this HTTP status, which counts more than what the body says of itself.

    A gateway in between may have written something else: JSON with codes of its own, or plain text.
    """
    return msgspec.structs.replace(_parse(body), code=code)


def event_status(body: msgspec.Raw) -> Status:
    """Read the object of a watch's ERROR event. Its code is all there is: HTTP said 200 long ago."""
    status = _parse(bytes(body))
    return status if status.code else msgspec.structs.replace(status, code=_INTERNAL)


def _parse(body: bytes) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, ValueError):
        return Status(message=" ".join(body[:_WHY_MAX_CHARS].decode(errors="replace").split()))


def refusal(what: str, status: Status, *, retry_after_s: float | None = None) -> KubeError:
    """Return the error to raise. ``what`` is a clause such as ``Pod ci/a was not created``."""
    why = _why(status)
    if status.code == _TOO_MANY:
        wait_s = (
            retry_after_s or (status.details.retry_after_seconds if status.details else 0) or 1.0
        )
        wait_s = min(wait_s, _RETRY_AFTER_MAX_S)
        return Throttled(what, why=why, fix="Ask less often, or later", retry_after_s=wait_s)
    error, fix = _sort(status)
    return error(what, why=why, fix=fix)


def failed_test(what: str, status: Status) -> KubeError | None:
    """
    Return the Conflict that a JSON patch's failed ``test`` is, if this is one.

    The server answers a bare 422 that names no object and no cause; a broken rule names both.
    """
    details = status.details
    names_something = details is not None and (details.name or details.kind or details.causes)
    if status.code != _UNPROCESSABLE or names_something:
        return None
    why = "a test in the patch failed or a path in it does not exist, so the object has changed"
    return Conflict(what, why=why, fix="Look at the object again")


def nonsense(what: str, error: Exception) -> KubeError:
    """Return the error for an answer that is not what was asked for, without its values: it may be a Secret."""
    what = f"{what}, or it was and the answer makes no sense"
    return Unavailable(what, why=str(error), fix="Check that the server address is an API server's")


def _why(status: Status) -> str:
    text = status.message or status.reason or f"the server answered {status.code}"
    if len(text) > _WHY_MAX_CHARS:
        text = f"{text[:_WHY_MAX_CHARS]}…"
    return text.rstrip(".")


def _sort(status: Status) -> tuple[type[KubeError], str]:
    code = status.code
    if code == _CONFLICT:
        if status.reason == "AlreadyExists":
            return AlreadyExists, "Look at the object that is there; it may be ours"
        return Conflict, "Look at the object again and decide anew"
    if code in _SERVER_FAULTS and code != _GATEWAY_TIMEOUT:
        return Unavailable, "Wait, and look at the API server if it goes on"
    if code in _REDIRECTS:
        return Unavailable, "Check the server address: an API server does not redirect"
    return _SORTS.get(code, (Invalid, "Correct the request"))


_SORTS: dict[int, tuple[type[KubeError], str]] = {
    _UNAUTHORIZED: (Refused, "Check the token or the client certificate; it may have expired"),
    _FORBIDDEN: (Refused, "Grant the permission; 'kubectl auth can-i' shows what is granted"),
    _NOT_FOUND: (NotFound, "Check the name; if the kind itself is unknown, install its CRD"),
    _REQUEST_TIMEOUT: (TimedOut, "Look whether it was applied, then try again"),
    _GATEWAY_TIMEOUT: (TimedOut, "Look whether it was applied, then try again"),
    _GONE: (Expired, "List again"),
    _UNPROCESSABLE: (Invalid, "Correct what is named"),
}
