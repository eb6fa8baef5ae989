"""What the API's answers are called when they are errors. The server's own words come first, without our token."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import aiohttp
import msgspec

from remuda.adapters.dispatch_wire import LOOK, network_reason
from remuda.model.errors import BadInput
from remuda.ports.api import ApiFault, ApiInvalid, ApiNotFound, ApiRefused, ApiUnavailable

if TYPE_CHECKING:
    from remuda.ports.api import ApiError

_WORDS_MAX: Final = 1000
_RETRY_MAX_S: Final = 60.0
_RUNS: Final = "Check the address, and that the server runs there"
_DISPATCH: Final = "Check that the address is that of dispatch, and of this version"


@dataclass(frozen=True, slots=True)
class Said:
    """An answer."""

    status: int
    body: bytes = field(repr=False)
    retry_after: str = ""


class _Problem(msgspec.Struct, frozen=True):
    error: str = ""
    why: str = ""
    fix: str = ""


def path_of(what: str, kind: str, name: str) -> str:
    """Return the path of one thing. The ids of jobs hold slashes, which stay; nothing leads elsewhere."""
    if not name or any(part in {"", ".", ".."} for part in name.split("/")):
        raise BadInput(what, why=f"{name!r} is no name", fix="Look at the list of what there is")
    return f"/api/v1/{kind}/{quote(name, safe='/')}"


def error_of(what: str, base: str, said: Said, token: str) -> ApiError:
    """Return the error that an answer is."""
    problem = _problem(said.body, token)
    both = bool(problem.error and problem.why) and problem.error.rstrip(". ") != what
    why = f"{problem.error}: {problem.why}" if both else problem.why
    why = (why or problem.error or f"{base} answered {said.status}").rstrip(". ")
    fix = problem.fix.rstrip(". ")
    match said.status:
        case 404:
            return ApiNotFound(what, why=why, fix=fix or _DISPATCH)
        case 401 | 403:
            return ApiRefused(what, why=why, fix=fix or "Use another token")
        case 408 | 425 | 429 | 500 | 502 | 503 | 504:
            after_s = _seconds(said.retry_after)
            return ApiUnavailable(what, why=why, fix=fix or LOOK, after_s=after_s)
        case status if 300 <= status < 400:  # noqa: PLR2004 - that is what 3xx means
            moved = "Give the address that it redirects to: the token is not sent there by itself"
            return ApiFault(what, why=why, fix=moved)
        case status if 400 <= status < 500:  # noqa: PLR2004 - likewise
            return ApiInvalid(what, why=why, fix=fix or "Correct the request")
        case _:
            return ApiFault(what, why=why, fix=fix or LOOK)


def unreachable(what: str, base: str, why: Exception | str, fix: str = "") -> ApiUnavailable:
    reason = why if isinstance(why, str) else _reason(why)
    return ApiUnavailable(what, why=f"{base}: {reason}".rstrip(". "), fix=fix or _RUNS)


def _reason(error: Exception) -> str:
    """Say a connection that failed in the system's words, not in those of the library around it."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(inner, ConnectionError) and inner.errno is not None:
        return os.strerror(inner.errno)
    return network_reason(error)


def no_sense(what: str, base: str, why: str) -> ApiFault:
    return ApiFault(what, why=f"the answer of {base} makes no sense ({why})", fix=_DISPATCH)


def _problem(body: bytes, token: str) -> _Problem:
    try:
        said = msgspec.json.decode(body, type=_Problem)
    except (msgspec.MsgspecError, ValueError):
        return _Problem()
    return _Problem(*(_plain(text, token) for text in (said.error, said.why, said.fix)))


def _plain(text: str, token: str) -> str:
    """Return someone else's text on one line, cut short, without our token and what a terminal would obey."""
    if token:
        text = text.replace(token, "…")  # before it is cut: half a token is a secret too
    return "".join(c if c.isprintable() else " " for c in text)[:_WORDS_MAX].strip()


def _seconds(retry_after: str) -> float | None:
    text = retry_after.strip()
    return min(float(text[:9]), _RETRY_MAX_S) if text.isascii() and text.isdigit() else None
