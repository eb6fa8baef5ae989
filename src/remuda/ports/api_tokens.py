"""The tokens of people and tools, by what they may do. Only a hash is kept: a lost token is replaced, never read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


class Role(StrEnum):
    """What a token may do; each includes what stands before it."""

    READ = "read"
    OPERATE = "operate"

    def includes(self, other: Role) -> bool:
        return self is Role.OPERATE or other is Role.READ


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A token without its text."""

    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class ApiTokens(Protocol):
    """Whom the API knows."""

    async def add(self, token: ApiToken, digest: bytes) -> bool:
        """Keep a token by the SHA-256 of its text. False: a token of that name is there already."""
        ...

    async def find(self, digest: bytes) -> ApiToken | None:
        """Return the token with this digest if it is neither revoked nor expired."""
        ...

    async def revoke(self, name: str) -> bool: ...

    async def all(self) -> tuple[ApiToken, ...]: ...
