"""The tokens of people and tools, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.ports.api_tokens import ApiToken
    from remuda.sim.jobs.tables import Tables


class MemoryApiTokens:
    """Implements ``remuda.ports.api_tokens.ApiTokens``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def add(self, token: ApiToken, digest: bytes) -> bool:
        tokens = self._tables.tokens
        if digest in tokens or any(kept.name == token.name for kept in tokens.values()):
            return False
        tokens[digest] = replace(token, revoked_at=None)
        return True

    async def find(self, digest: bytes) -> ApiToken | None:
        token, now = self._tables.tokens.get(digest), self._tables.clock.now()
        if token is None or token.revoked_at is not None:
            return None
        return None if token.expires_at is not None and token.expires_at <= now else token

    async def revoke(self, name: str) -> bool:
        for digest, token in self._tables.tokens.items():
            if token.name == name and token.revoked_at is None:
                self._tables.tokens[digest] = replace(token, revoked_at=self._tables.clock.now())
                return True
        return False

    async def all(self) -> tuple[ApiToken, ...]:
        return tuple(sorted(self._tables.tokens.values(), key=lambda token: token.name))
