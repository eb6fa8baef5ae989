"""The pool on a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database


async def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("CREATE TABLE seen (n int)")

    async def fail_half_way() -> None:
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO seen VALUES (1)")
            raise LookupError

    with pytest.raises(LookupError):
        await fail_half_way()
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM seen") == 0
