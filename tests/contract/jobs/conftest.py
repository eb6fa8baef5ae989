"""One suite, two stores of jobs: the one in memory that the simulator uses, and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from tests.support.jobs import Store, check_books, memory_store, postgres_store
from tests.support.postgres import database, database_url, postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["database", "database_url", "postgres_server"]


@pytest.fixture(params=["memory", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    """Return where the store is: the URL of a fresh database, or nowhere but in memory."""
    if request.param == "memory":
        return ""
    url: str = request.getfixturevalue("database_url")
    return url


@pytest.fixture
async def store(place: str) -> AsyncIterator[Store]:
    """Return the store under test. After each test its books must balance."""
    if not place:
        made = memory_store()
        yield made
        await check_books(made.views)
        return
    settings = DatabaseSettings(url=place, connections_min=1, connections_max=4)
    async with open_database(settings) as opened:
        made = postgres_store(opened)
        yield made
        await check_books(made.views)
