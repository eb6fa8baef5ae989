"""The tokens of people and tools on PostgreSQL, by their digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.adapters.postgres.queries import query
from remuda.ports.api_tokens import ApiToken, Role

if TYPE_CHECKING:
    from asyncpg import Record

    from remuda.adapters.postgres.pool import Database
    from remuda.ports.clock import Clock


class PostgresApiTokens:
    """Implements ``remuda.ports.api_tokens.ApiTokens``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, token: ApiToken, digest: bytes) -> bool:
        values = (token.name, digest, token.role.value, token.created_at, token.expires_at)
        async with self._database.connection() as c:
            return await c.fetchval(query("add_token"), *values) is not None

    async def find(self, digest: bytes) -> ApiToken | None:
        async with self._database.connection() as c:
            row = await c.fetchrow(query("find_token"), digest, self._clock.now())
        return None if row is None else _token_of(row)

    async def revoke(self, name: str) -> bool:
        async with self._database.connection() as c:
            return await c.fetchval(query("revoke_token"), name, self._clock.now()) is not None

    async def all(self) -> tuple[ApiToken, ...]:
        async with self._database.connection() as c:
            return tuple(_token_of(row) for row in await c.fetch(query("list_tokens")))


def _token_of(row: Record) -> ApiToken:
    return ApiToken(
        name=row["name"],
        role=Role(row["role"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )
