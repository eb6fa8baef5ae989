"""
Bring a database's schema up to date: numbered files, each once, in order, by one runner at a time.

What is to be done is decided in ``migration_plan``. Runners that start together take turns by an advisory lock. It is
asked for again and again rather than waited for: a waiting statement holds a snapshot, and CREATE INDEX CONCURRENTLY
waits for every snapshot, so the two would wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING

import asyncpg

from remuda.adapters.postgres.errors import Place, may_heal
from remuda.adapters.postgres.migration_plan import (
    Applied,
    Fault,
    Migration,
    migrations_of,
    plan,
)
from remuda.adapters.postgres.pool import DatabaseSettings, connect
from remuda.ports.database import DatabaseRefused, DatabaseTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from remuda.adapters.postgres.pool import Connection

_LOCK = 0x72656D756461  # "remuda": one lock for all runners on a database
_POLL_S = 0.1
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
_TRY_LOCK = "SELECT pg_try_advisory_lock($1)"
_HAS_TABLE = "SELECT to_regclass('schema_migrations') IS NOT NULL"
_APPLIED = "SELECT number, name, sha256 FROM schema_migrations ORDER BY number"
_DONE = "INSERT INTO schema_migrations (number, name, sha256) VALUES ($1, $2, $3)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateSettings:
    """How long a migration may take and wait."""

    statement_deadline_s: float = 600.0
    lock_deadline_s: float = 5.0
    """How long one statement waits for a table in use; everybody else who wants the table waits behind it."""
    turn_deadline_s: float = 900.0
    """How long to wait for another runner."""


def shipped() -> Mapping[str, str]:
    """Return the files of this version: name and text."""
    folder = resources.files("remuda.adapters.postgres") / "migrations"
    return {
        file.name: file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


async def migrate(
    database: DatabaseSettings,
    files: Mapping[str, str] | None = None,
    settings: MigrateSettings | None = None,
) -> tuple[Migration, ...]:
    """Run what is pending and return it; nothing if another runner was faster."""
    place, settings = Place(database.url), settings or MigrateSettings()
    available = _available(place, files)
    async with _session(database, settings) as connection, _turn(connection, place, settings):
        await connection.execute(_TABLE)
        steps = _steps(place, await _applied(connection), available)
        for migration in steps:
            await _run(connection, migration, place)
    return steps


async def pending(
    database: DatabaseSettings, files: Mapping[str, str] | None = None
) -> tuple[Migration, ...]:
    """Return what is yet to be run. Changes nothing and waits for nobody."""
    place = Place(database.url)
    available = _available(place, files)
    async with connect(database) as connection:
        known = await connection.fetchval(_HAS_TABLE)
        return _steps(place, await _applied(connection) if known else (), available)


@contextlib.asynccontextmanager
async def _session(
    database: DatabaseSettings, settings: MigrateSettings
) -> AsyncIterator[Connection]:
    patient = replace(
        database,
        statement_deadline_s=settings.statement_deadline_s,
        lock_deadline_s=settings.lock_deadline_s,
        application_name=f"{database.application_name}-migrate",
    )
    async with connect(patient) as connection:
        yield connection


@contextlib.asynccontextmanager
async def _turn(
    connection: Connection, place: Place, settings: MigrateSettings
) -> AsyncIterator[None]:
    """Be the only runner for the block. The lock is the session's: it goes with the connection, whatever happens."""
    try:
        async with asyncio.timeout(settings.turn_deadline_s):
            while not await connection.fetchval(_TRY_LOCK, _LOCK):  # noqa: ASYNC110 - another process has it
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise DatabaseTimeout(
            f"{place} was not migrated",
            why=f"another runner was at it for {settings.turn_deadline_s:g} s",
            fix="See in pg_stat_activity what remuda-migrate waits for, then run it again",
        ) from None
    yield


async def _applied(connection: Connection) -> tuple[Applied, ...]:
    rows = await connection.fetch(_APPLIED)
    return tuple(Applied(row["number"], row["name"], row["sha256"]) for row in rows)


async def _run(connection: Connection, migration: Migration, place: Place) -> None:
    """
    Run one file and note it.

    Without a transaction a crash can come between the two; such files must be written to be run again.
    """
    try:
        async with contextlib.AsyncExitStack() as stack:
            if migration.in_transaction:
                await stack.enter_async_context(connection.transaction())
            for statement in migration.statements:
                await connection.execute(statement)
            await connection.execute("RESET ALL")  # a SET in one file is not for the next
            await connection.execute(_DONE, migration.number, migration.name, migration.sha256)
    except asyncpg.PostgresError as error:
        if may_heal(error):
            raise
        raise DatabaseRefused(
            f"{place} was not migrated",
            why=f"{migration} failed ({place.say(error)})",
            fix="Those before it stay; mend what it stumbled over and run it again",
        ) from None


def _available(place: Place, files: Mapping[str, str] | None) -> tuple[Migration, ...]:
    return _or_refuse(place, migrations_of(shipped() if files is None else files))


def _steps(
    place: Place, applied: tuple[Applied, ...], available: tuple[Migration, ...]
) -> tuple[Migration, ...]:
    return _or_refuse(place, plan(applied, available))


def _or_refuse(place: Place, found: tuple[Migration, ...] | Fault) -> tuple[Migration, ...]:
    if isinstance(found, Fault):
        raise DatabaseRefused(f"{place} cannot be migrated", why=found.why, fix=found.fix)
    return found
