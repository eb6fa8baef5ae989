"""The SQL that ships: migrations that apply and lint, queries that fit the schema they make and that somebody uses."""

from __future__ import annotations

import re
from pathlib import Path

from remuda.adapters.postgres.migrate import migrate, pending, shipped
from remuda.adapters.postgres.pool import DatabaseSettings, connect
from remuda.adapters.postgres.queries import all_queries

SOURCE = Path(__file__).resolve().parents[3] / "src" / "remuda"


async def test_the_shipped_migrations_bring_an_empty_database_up_to_date(
    empty_database_url: str,
) -> None:
    settings = DatabaseSettings(url=empty_database_url)
    steps = await migrate(settings)

    assert len(steps) == len(shipped())
    assert await pending(settings) == ()


async def test_every_query_fits_the_schema(database_url: str) -> None:
    async with connect(DatabaseSettings(url=database_url)) as connection:
        for statement in all_queries().values():
            await connection.prepare(statement)


def test_every_query_is_used_and_every_used_one_exists() -> None:
    used = {
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r'\bquery\(\s*"([a-z0-9_]+)"', file.read_text())
    }

    assert used == set(all_queries())
