"""One suite, two memories of the local forge: the simulator's, and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from tests.support.local_jobs import LocalStore, memory_local, postgres_local
from tests.support.postgres import database, database_url, postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["database", "database_url", "postgres_server"]


@pytest.fixture(params=["memory", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    """Return the URL of a fresh database, or nothing for memory."""
    if request.param == "memory":
        return ""
    url: str = request.getfixturevalue("database_url")
    return url


@pytest.fixture
async def both(place: str) -> AsyncIterator[LocalStore]:
    if not place:
        yield memory_local()
        return
    settings = DatabaseSettings(url=place, connections_min=1, connections_max=8)
    async with open_database(settings) as opened:
        yield postgres_local(opened)
