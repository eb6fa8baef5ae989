"""The page about the database is the schema."""

from __future__ import annotations

from remuda.adapters.postgres.pool import DatabaseSettings, connect
from tools.database_page import PAGE, page


async def test_the_page_about_the_database_is_fresh(database_url: str) -> None:
    async with connect(DatabaseSettings(url=database_url)) as connection:
        fresh = await page(connection)
    assert PAGE.read_text() == fresh, "write it anew: uv run python -m tools.database_page"


async def test_every_table_and_function_says_what_it_is_for(database_url: str) -> None:
    async with connect(DatabaseSettings(url=database_url)) as connection:
        fresh = await page(connection)
    assert "None" not in fresh
    assert "|  |\n" not in fresh[fresh.index("## Functions") :]
