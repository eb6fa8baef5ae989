"""
A real PostgreSQL for tests: one server per run, one database per test.

Import the fixtures in the conftest of a suite that needs them. The server is the embedded one, so no machine needs to
have PostgreSQL installed.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from remuda.adapters.postgres.embedded import EmbeddedPostgres, EmbeddedSettings
from remuda.adapters.postgres.migrate import migrate
from remuda.adapters.postgres.pool import Database, DatabaseSettings, open_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TEMPLATE = "migrated"


@dataclass(frozen=True, slots=True)
class Server:
    """The run's server, and databases on it."""

    postgres: EmbeddedPostgres
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def new_database(self, template: str) -> str:
        """Copy the template and return the name of the copy."""
        name = f"test_{next(self._numbers)}"
        await self.administer(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    async def drop(self, name: str) -> None:
        await self.administer(f"DROP DATABASE {name} WITH (FORCE)")

    async def administer(self, statement: str) -> None:
        connection = await asyncpg.connect(self.postgres.dsn_of("postgres"), timeout=10)
        try:
            await connection.execute(statement, timeout=30)
        finally:
            await connection.close(timeout=5)

    async def make_template(self) -> None:
        """Migrate one database; the tests' own are copies of it."""
        await self.administer(f"CREATE DATABASE {TEMPLATE}")
        await migrate(DatabaseSettings(url=self.postgres.dsn_of(TEMPLATE)))


def private_folder() -> Path:
    """Make a folder that PostgreSQL can use even when the tests run as root: pytest's own are closed to others."""
    return Path(tempfile.mkdtemp(prefix="remuda-test-"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    folder = private_folder()
    server = Server(EmbeddedPostgres(folder, EmbeddedSettings(fast=True)))
    try:
        with asyncio.Runner() as runner:
            runner.run(server.postgres.__aenter__())
            try:
                runner.run(server.make_template())
                yield server
            finally:
                runner.run(server.postgres.__aexit__(None, None, None))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def database_url(postgres_server: Server) -> AsyncIterator[str]:
    """Make a fresh database with the schema of this version."""
    name = await postgres_server.new_database(TEMPLATE)
    yield postgres_server.postgres.dsn_of(name)
    await postgres_server.drop(name)


@pytest.fixture
async def empty_database_url(postgres_server: Server) -> AsyncIterator[str]:
    """Make a fresh database with nothing in it."""
    name = await postgres_server.new_database("template0")
    yield postgres_server.postgres.dsn_of(name)
    await postgres_server.drop(name)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Open a pool on a fresh database with the schema of this version."""
    settings = DatabaseSettings(url=database_url, connections_min=1, connections_max=10)
    async with open_database(settings) as opened:
        yield opened
