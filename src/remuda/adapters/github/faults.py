"""
What a refusal of GitHub means to the caller, as errors of the port. Pure.

GitHub's own sentence is quoted, cut short, on one line and without our credentials. A success is never quoted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.ports.forge import ForgeRefused, ForgeThrottled, ForgeUnavailable, Scope

if TYPE_CHECKING:
    from collections.abc import Collection

    from remuda.adapters.github.wire import Reply
    from remuda.ports.forge import ForgeError

_SAID_MAX: Final = 300
_RETRY_MIN_S: Final = 1.0
_RETRY_MAX_S: Final = 3600.0
_RETRY_UNSAID_S: Final = 60.0
"""What GitHub asks for when it names no time."""
_SECRET_MIN: Final = 6
_LOOKS_SECRET: Final = re.compile(r"gh[a-z]_\w{8,}|eyJ[\w.-]{20,}|[A-Za-z0-9+/=_-]{80,}")
"""GitHub's tokens, signed ones, and whatever is as long as a job config."""

OK: Final = range(200, 300)
NOT_MODIFIED: Final = 304
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
GONE: Final = 410
UNPROCESSABLE: Final = 422
TOO_MANY: Final = 429
BROKEN: Final = 500
_MOVED: Final = range(300, 400)


class _Refusal(msgspec.Struct, frozen=True):
    message: object = None


def throttled_s(reply: Reply, now: float) -> float | None:
    """Return for how long GitHub wants not to be asked, or None if that is not what it says."""
    if reply.status not in {FORBIDDEN, TOO_MANY}:
        return None
    after = reply.headers.get("retry-after", "")
    if after.isascii() and after.isdigit() and len(after) < 9:  # noqa: PLR2004 - years
        return _bounded(float(after))
    reset = reply.headers.get("x-ratelimit-reset", "")
    if reply.headers.get("x-ratelimit-remaining", "") == "0":
        known = reset.isascii() and reset.isdigit() and len(reset) < 16  # noqa: PLR2004 - exact as a float
        return _bounded(float(reset) - now + 1 if known else _RETRY_UNSAID_S)
    words = said(reply.body).lower()
    if reply.status == TOO_MANY or "rate limit" in words or "abuse detection" in words:
        return _RETRY_UNSAID_S
    return None


def _bounded(seconds: float) -> float:
    return min(_RETRY_MAX_S, max(_RETRY_MIN_S, seconds))


def throttled(what: str, retry_after_s: float) -> ForgeThrottled:
    return ForgeThrottled(
        what,
        why=f"GitHub's rate limit is used up for {retry_after_s:.0f} s",
        fix="Wait; if it comes back often, look who else uses this App or installation",
        retry_after_s=retry_after_s,
    )


def fault(
    what: str, reply: Reply, secrets: Collection[str], scope: Scope, fix: str = ""
) -> ForgeError:
    """Return the error for an answer that is neither a success nor a matter of rate limits."""
    words = said(reply.body, secrets)
    why = f"GitHub answered {reply.status}" + (f" ({words})" if words else "")
    if reply.status >= BROKEN or reply.status == CONFLICT:
        return ForgeUnavailable(what, why=why, fix="Try again later; see GitHub's status page")
    if reply.status == UNAUTHORIZED:
        # The token is thrown away with this answer; what comes next asks for a new one.
        return ForgeUnavailable(what, why=why, fix="Try again: a new token is asked for")
    if reply.status in _MOVED:
        why = f"GitHub answered {reply.status}: it is to be found elsewhere"
        return ForgeRefused(
            what, why=why, fix="Was the repository renamed or moved?", scope=Scope.REPOSITORY
        )
    return ForgeRefused(what, why=why, fix=fix or _FIXES.get(reply.status, _LOOK), scope=scope)


_LOOK: Final = "See the App's settings and its installation at GitHub"
_FIXES: Final = {
    FORBIDDEN: "Check the App's permissions, and that its owner accepted changes of them",
    NOT_FOUND: "Check that the App is installed there and may see the repository",
    UNPROCESSABLE: "Look at the job's labels and the pool's: GitHub does not take the request as it is",
}


def said(body: bytes, secrets: Collection[str] = ()) -> str:
    """Return GitHub's sentence. Secrets are taken out before it is cut: half a token is a secret too."""
    try:
        message = msgspec.json.decode(body, type=_Refusal).message
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    if not isinstance(message, str):
        return ""
    for secret in secrets:
        if len(secret) >= _SECRET_MIN:
            message = message.replace(secret, "…")
    message = _LOOKS_SECRET.sub("…", message)
    return "".join(c if c.isprintable() else " " for c in message)[:_SAID_MAX].strip().rstrip(".")
