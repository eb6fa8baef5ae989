"""
The tokens of people and tools: how one is made, told from other text, and compared.

A token is shown once, when it is made. What is kept of it is its SHA-256: it has 256 random bits, so nothing slower is
needed. Its end is a checksum, so that a typing error and most rubbish are refused without a question to the database.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.model.errors import BadInput
from remuda.ports.api_tokens import ApiToken, Role

if TYPE_CHECKING:
    from datetime import timedelta

    from remuda.ports.api_tokens import ApiTokens
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

PREFIX: Final = "rmd_"
"""Secret scanners find it, and so does the eye."""
_CHECK_CHARS = 6
_FORM = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}[0-9a-f]{{{_CHECK_CHARS}}}")
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made, and the only copy of its text."""

    token: ApiToken
    text: str = field(repr=False)


def digest_of(text: str) -> bytes:
    """Return what is kept of a token."""
    return hashlib.sha256(text.encode()).digest()


def is_token(text: str) -> bool:
    """Tell whether a text can be one of our tokens at all."""
    if _FORM.fullmatch(text) is None:
        return False
    body, check = text[:-_CHECK_CHARS], text[-_CHECK_CHARS:]
    return hmac.compare_digest(_check(body), check)


def matches(text: str, digest: bytes) -> bool:
    """Compare a token with what is kept of it, in a time that tells nothing about either."""
    return hmac.compare_digest(digest_of(text), digest)


def token_text(ids: Ids) -> str:
    body = PREFIX + base64.urlsafe_b64encode(ids.secret(32)).rstrip(b"=").decode()
    return body + _check(body)


async def create(
    tokens: ApiTokens,
    name: str,
    role: Role,
    *,
    ids: Ids,
    clock: Clock,
    lifetime: timedelta | None = None,
) -> NewToken:
    """Make a token and keep its digest. The name is for people: it shows in the audit."""
    _check_name(name)
    now = clock.now()
    if lifetime is not None and lifetime.total_seconds() <= 0:
        raise BadInput(
            f"The token {name} cannot be made",
            why="it would have expired already",
            fix="Give a lifetime of more than 0 seconds, or none",
        )
    text = token_text(ids)
    expires_at = None if lifetime is None else now + lifetime
    token = ApiToken(name=name, role=role, created_at=now, expires_at=expires_at)
    if not await tokens.add(token, digest_of(text)):
        raise BadInput(
            f"The token {name} cannot be made",
            why="a token of that name is there already; a name is used once, revoked or not",
            fix="Choose another name",
        )
    return NewToken(token, text)


async def revoke(tokens: ApiTokens, name: str) -> None:
    """End a token. Replicas that have just seen it may believe it for the time of their cache, at most a minute."""
    if not await tokens.revoke(name):
        raise BadInput(
            f"The token {name!r} cannot be revoked",
            why="there is none of that name, or it was revoked before",
            fix="See the names with: remuda server tokens list",
        )


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise BadInput(
            f"{name!r} cannot be the name of a token",
            why="a name has 1 to 63 of a-z, 0-9, dot, dash and underscore, and begins and ends with a letter or digit",
            fix="Name it after who uses it, such as ci-dashboard",
        )


def _check(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:_CHECK_CHARS]
