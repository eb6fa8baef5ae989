"""
Who we are to a registry: Basic, or a token that the registry's own token service gives out (Bearer).

Pure, but for the secrets it holds. A password goes to the registry or to the token service that it names, and only over
TLS unless the registry itself is spoken to without.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import SplitResult, urlencode, urlsplit

import msgspec
from msgspec import Meta

from remuda.adapters.registry.errors import BadAnswer

_SCHEME: Final = re.compile(r"\s*(basic|bearer)\b", re.IGNORECASE)
_PARAMETER: Final = re.compile(r'([A-Za-z_]{1,40})\s*=\s*(?:"([^"]{0,2000})"|([^\s,"]{1,2000}))')
_HEADER_MAX: Final = 8000
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,20000}")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password of one registry."""

    username: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


@dataclass(frozen=True, slots=True)
class Challenge:
    """How a registry wants to be asked."""

    is_bearer: bool
    realm: str = ""
    service: str = ""
    scope: str = ""

    def token_url(self, *, plain: bool, scope: str) -> str:
        """Return where to ask for a token. Raises BadAnswer if a password must not go there."""
        parts = _split(self.realm)
        schemes = {"https", "http"} if plain else {"https"}
        if parts is None or parts.scheme not in schemes or not parts.hostname:
            raise BadAnswer(
                "The registry cannot be used",
                why=f"its token service {self.realm[:200]!r} is not an https address",
                fix="Check the registry's auth settings",
            )
        query = {"service": self.service, "scope": self.scope or scope}
        asked = urlencode({name: value for name, value in query.items() if value})
        joined = f"{parts.query}&{asked}" if parts.query else asked
        return parts._replace(query=joined, fragment="").geturl()


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # half an address
        return None


class _TokenBody(msgspec.Struct, frozen=True):
    token: Annotated[str, Meta(max_length=20000)] = ""
    access_token: Annotated[str, Meta(max_length=20000)] = ""


def read_challenge(headers: list[str]) -> Challenge | None:
    """Return the first challenge that we can meet, Bearer before Basic."""
    found = [c for header in headers if (c := _read(header[:_HEADER_MAX])) is not None]
    return next((c for c in found if c.is_bearer), found[0] if found else None)


def _read(header: str) -> Challenge | None:
    scheme = _SCHEME.match(header)
    if scheme is None:
        return None
    given = {m[1].lower(): m[2] or m[3] or "" for m in _PARAMETER.finditer(header, scheme.end())}
    return Challenge(
        is_bearer=scheme[1].lower() == "bearer",
        realm=given.get("realm", ""),
        service=given.get("service", ""),
        scope=given.get("scope", ""),
    )


def read_token(body: bytes) -> str:
    """Return the value of the Authorization header that a token service's answer stands for."""
    try:
        answer = msgspec.json.decode(body, type=_TokenBody)
    except (msgspec.MsgspecError, ValueError):
        answer = _TokenBody()
    token = answer.token or answer.access_token
    if not _VISIBLE.fullmatch(token):  # also keeps a line break out of a header
        raise BadAnswer(
            "No token for the registry",
            why="its token service answered without one",
            fix="Check the registry's auth settings",
        )
    return f"Bearer {token}"
