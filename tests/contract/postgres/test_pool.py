"""The pool on a real server, and on one that goes away."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import asyncpg
import pytest

from remuda.adapters.postgres.embedded import EmbeddedPostgres, EmbeddedSettings
from remuda.adapters.postgres.pool import Database, DatabaseSettings, connect, open_database
from remuda.ports.database import (
    DatabaseConflict,
    DatabaseError,
    DatabaseRefused,
    DatabaseTimeout,
    DatabaseUnavailable,
)
from tests.support.eventually import eventually, within
from tests.support.postgres import private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


async def fetch(database: Database, statement: str) -> object:
    async with database.connection() as connection:
        return await connection.fetchval(statement)


async def execute(database: Database, statement: str) -> None:
    async with database.connection() as connection:
        await connection.execute(statement)


def small(url: str) -> DatabaseSettings:
    return DatabaseSettings(url=url, connections_min=1, connections_max=1)


async def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    await execute(database, "CREATE TABLE seen (n int)")

    async def fail_half_way() -> None:
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO seen VALUES (1)")
            raise LookupError

    with pytest.raises(LookupError):
        await fail_half_way()
    assert await fetch(database, "SELECT count(*) FROM seen") == 0


async def test_every_session_says_whose_it_is_and_has_deadlines(empty_database_url: str) -> None:
    settings = replace(small(empty_database_url), application_name="remuda-server")
    async with open_database(settings) as database, database.dedicated() as apart:
        for name, value in {
            "application_name": "remuda-server",
            "statement_timeout": "10s",
            "lock_timeout": "5s",
            "idle_in_transaction_session_timeout": "30s",
            "TimeZone": "UTC",
        }.items():
            assert await fetch(database, f"SHOW {name}") == value
            assert await apart.fetchval(f"SHOW {name}") == value


async def test_a_connection_comes_back_without_a_statement(empty_database_url: str) -> None:
    """What the pool's speed rests on: nothing is sent on release. See the top of pool.py for what makes it safe."""
    last = "SELECT query FROM pg_stat_activity WHERE pid = $1"
    async with open_database(small(empty_database_url)) as database:
        async with database.connection() as connection:
            pid = await connection.fetchval("SELECT pg_backend_pid()")
        async with connect(small(empty_database_url)) as observer:
            assert await observer.fetchval(last, pid) == "SELECT pg_backend_pid()"
        assert await fetch(database, "SELECT pg_backend_pid()") == pid


async def test_a_transaction_that_was_left_open_is_rolled_back(empty_database_url: str) -> None:
    async with open_database(small(empty_database_url)) as database:
        await execute(database, "CREATE TABLE seen (n int)")
        await execute(database, "BEGIN; INSERT INTO seen VALUES (1)")
        assert await fetch(database, "SELECT count(*) FROM seen") == 0


async def test_a_statement_that_takes_too_long_is_ended(empty_database_url: str) -> None:
    settings = replace(small(empty_database_url), statement_deadline_s=0.05)
    async with open_database(settings) as database:
        with pytest.raises(DatabaseTimeout, match="statement timeout"):
            await execute(database, "SELECT pg_sleep(30)")
        assert await fetch(database, "SELECT 1") == 1


async def test_a_free_connection_is_not_waited_for_without_end(empty_database_url: str) -> None:
    settings = replace(small(empty_database_url), acquire_deadline_s=0.05)
    async with open_database(settings) as database:
        async with database.connection():
            with pytest.raises(DatabaseTimeout):
                await within(fetch(database, "SELECT 1"))
        assert await fetch(database, "SELECT 1") == 1


async def test_a_caller_that_is_cancelled_leaves_the_pool_whole(empty_database_url: str) -> None:
    async with open_database(small(empty_database_url)) as database:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await execute(database, "SELECT pg_sleep(30)")
        assert await within(fetch(database, "SELECT 1")) == 1


LINGERS = """
DO $$ BEGIN PERFORM pg_sleep(29); EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(0.2); END $$ -- lingers
"""


async def test_who_is_cancelled_goes_on_when_its_statement_is_over(empty_database_url: str) -> None:
    lingers = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%-- lingers_' AND state = 'active'"
    )
    settings = small(empty_database_url)
    async with open_database(settings) as database, database.dedicated() as observer:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(execute(database, LINGERS), name="asks")
            await eventually(lambda: observer.fetchval(lingers))
            asking.cancel()
        assert await observer.fetchval(lingers) == 0


async def test_an_answer_stands_if_its_connection_is_lost_right_after(
    empty_database_url: str,
) -> None:
    async with open_database(small(empty_database_url)) as database:
        await execute(database, "CREATE TABLE seen (n int)")
        for number in range(5):
            async with database.connection() as connection:
                await connection.execute("INSERT INTO seen VALUES ($1)", number)
                asyncio.get_running_loop().call_soon(connection.terminate)
            assert await fetch(database, "SELECT count(*) FROM seen") == number + 1


async def test_two_that_wait_for_each_other_end_in_a_conflict(database: Database) -> None:
    await execute(database, "CREATE TABLE two (n int PRIMARY KEY, x int)")
    await execute(database, "INSERT INTO two VALUES (1), (2)")
    both = asyncio.Barrier(2)

    async def cross(first: int, second: int) -> DatabaseError | None:
        try:
            async with database.transaction() as connection:
                await connection.execute("UPDATE two SET x = 1 WHERE n = $1", first)
                await both.wait()
                await connection.execute("UPDATE two SET x = 1 WHERE n = $1", second)
        except DatabaseError as error:
            return error
        return None

    ends = await within(asyncio.gather(cross(1, 2), cross(2, 1)))
    assert sorted(type(end).__name__ for end in ends) == ["DatabaseConflict", "NoneType"]
    assert issubclass(DatabaseConflict, DatabaseError)


async def test_a_broken_constraint_is_told_as_it_is(database: Database) -> None:
    await execute(database, "CREATE TABLE one (n int PRIMARY KEY)")
    with pytest.raises(asyncpg.UniqueViolationError):
        await execute(database, "INSERT INTO one VALUES (1), (1)")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param(("/test_", "/no_such_"), DatabaseRefused, id="no such database"),
        pytest.param(("user=remuda", "user=nobody_else"), DatabaseRefused, id="no such user"),
        pytest.param(("host=", "host=%2Fno"), DatabaseUnavailable, id="no server there"),
    ],
)
async def test_a_database_that_cannot_be_opened_says_why(
    empty_database_url: str, change: tuple[str, str], kind: type[DatabaseError]
) -> None:
    with pytest.raises(DatabaseError) as raised:
        await open_database(small(empty_database_url.replace(*change))).__aenter__()

    assert type(raised.value) is kind


async def test_an_empty_database_is_said_not_to_be_migrated(empty_database_url: str) -> None:
    async with open_database(small(empty_database_url)) as database:
        with pytest.raises(DatabaseRefused, match="remuda server migrate"):
            await fetch(database, "SELECT count(*) FROM jobs")


async def test_a_pool_outlives_its_server(postgres_home: Path) -> None:
    fast = EmbeddedSettings(fast=True)
    async with EmbeddedPostgres(postgres_home, fast) as first:
        pool = open_database(small(first.dsn))
        database = await pool.__aenter__()
        assert await fetch(database, "SELECT 1") == 1
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(DatabaseUnavailable):
            await within(_until_it_fails(database))

    with pytest.raises(DatabaseUnavailable):
        await fetch(database, "SELECT 1")
    async with EmbeddedPostgres(postgres_home, fast):
        assert await eventually(lambda: fetch(database, "SELECT 1")) == 1
        await within(pool.__aexit__(None, None, None))


async def _until_it_fails(database: Database) -> None:
    while True:
        await fetch(database, "SELECT 1")


@pytest.fixture
def postgres_home() -> Iterator[Path]:
    folder = private_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
