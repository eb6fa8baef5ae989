"""The runner on a real server: alone, together with another, and after a crash."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import asyncpg
import pytest

from remuda.adapters.postgres.migrate import MigrateSettings, migrate, pending
from remuda.adapters.postgres.pool import DatabaseSettings, connect
from remuda.ports.database import DatabaseRefused, DatabaseTimeout
from tests.support.eventually import within

JOBS = {"0001_jobs.sql": "CREATE TABLE jobs (id bigint PRIMARY KEY);\nINSERT INTO jobs VALUES (1);"}
MORE = JOBS | {"0002_more.sql": "ALTER TABLE jobs ADD COLUMN state text;"}
INDEX = JOBS | {
    "0002_index.sql": "-- remuda: no transaction\n"
    "DROP INDEX CONCURRENTLY IF EXISTS jobs_by_id;\n"
    "CREATE INDEX CONCURRENTLY jobs_by_id ON jobs (id);\n"
}


def at(url: str) -> DatabaseSettings:
    return DatabaseSettings(url=url)


async def run(url: str, statement: str) -> None:
    async with connect(at(url)) as connection:
        await connection.execute(statement)


async def count(url: str, source: str) -> int:
    async with connect(at(url)) as connection:
        found = await connection.fetchval(f"SELECT count(*) FROM {source}")  # noqa: S608 - the test's own text
        assert isinstance(found, int)
        return found


async def test_pending_ones_are_run_once_and_in_order(empty_database_url: str) -> None:
    url = empty_database_url

    assert [str(m) for m in await pending(at(url), MORE)] == ["0001_jobs", "0002_more"]
    assert [str(m) for m in await migrate(at(url), JOBS)] == ["0001_jobs"]
    assert [str(m) for m in await migrate(at(url), MORE)] == ["0002_more"]
    assert await migrate(at(url), MORE) == ()
    assert await pending(at(url), MORE) == ()
    assert await count(url, "jobs") == 1


async def test_asking_what_is_pending_changes_nothing(empty_database_url: str) -> None:
    await pending(at(empty_database_url), JOBS)

    tables = "pg_tables WHERE schemaname = 'public'"
    assert await count(empty_database_url, tables) == 0


@pytest.mark.parametrize("files", [MORE, INDEX], ids=["in transactions", "concurrent index"])
async def test_of_runners_that_start_together_one_does_the_work(
    empty_database_url: str, files: dict[str, str]
) -> None:
    runs = (migrate(at(empty_database_url), files) for _ in range(4))
    done = await within(asyncio.gather(*runs), 60.0)

    assert sorted(len(steps) for steps in done) == [0, 0, 0, 2]
    assert await count(empty_database_url, "schema_migrations") == 2


async def test_one_that_fails_is_rolled_back_and_the_ones_before_it_stay(
    empty_database_url: str,
) -> None:
    url = empty_database_url
    broken = JOBS | {"0002_more.sql": "DELETE FROM jobs; ALTER TABLE nonsense ADD COLUMN x int;"}

    with pytest.raises(DatabaseRefused, match=r"0002_more failed .*nonsense"):
        await migrate(at(url), broken)
    assert await count(url, "jobs") == 1
    assert [str(m) for m in await migrate(at(url), MORE)] == ["0002_more"]


async def test_one_that_cannot_be_noted_is_undone(empty_database_url: str) -> None:
    url = empty_database_url
    already = (
        "DELETE FROM jobs;"
        "INSERT INTO schema_migrations (number, name, sha256) VALUES (2, 'more', '');"
    )
    noted = JOBS | {"0002_more.sql": already}

    with pytest.raises(DatabaseRefused, match="0002_more failed"):
        await migrate(at(url), noted)
    assert await count(url, "jobs") == 1


async def test_a_file_that_was_changed_stops_everything(empty_database_url: str) -> None:
    url = empty_database_url
    await migrate(at(url), JOBS)
    tampered = {"0001_jobs.sql": JOBS["0001_jobs.sql"] + " -- and one more thought"}

    with pytest.raises(DatabaseRefused, match="checksum differs"):
        await migrate(at(url), tampered | {"0002_more.sql": MORE["0002_more.sql"]})
    with pytest.raises(DatabaseRefused, match="checksum differs"):
        await pending(at(url), tampered)
    assert await count(url, "schema_migrations") == 1


async def test_a_newer_database_is_left_alone(empty_database_url: str) -> None:
    await migrate(at(empty_database_url), MORE)

    with pytest.raises(DatabaseRefused, match="this version ends at 0001"):
        await migrate(at(empty_database_url), JOBS)


async def test_an_index_that_a_crash_left_invalid_is_made_anew(empty_database_url: str) -> None:
    url = empty_database_url
    await migrate(at(url), JOBS)
    await run(url, "INSERT INTO jobs VALUES (2)")
    unique = "CREATE UNIQUE INDEX CONCURRENTLY jobs_by_id ON jobs ((id > 0))"
    with pytest.raises(asyncpg.UniqueViolationError):
        await run(url, unique)  # what a crash half-way leaves, too
    assert await count(url, "pg_index WHERE NOT indisvalid") == 1

    await migrate(at(url), INDEX)
    assert await count(url, "pg_index WHERE NOT indisvalid") == 0


async def test_a_table_in_use_is_not_waited_for_without_end(empty_database_url: str) -> None:
    url = empty_database_url
    await migrate(at(url), JOBS)
    patient = replace(at(url), lock_deadline_s=600)  # but not while it migrates
    impatient = MigrateSettings(lock_deadline_s=0.05)
    async with connect(at(url)) as connection, connection.transaction():
        await connection.execute("SELECT * FROM jobs")
        with pytest.raises(DatabaseTimeout, match="lock timeout"):
            await within(migrate(patient, MORE, impatient))

    assert [str(m) for m in await migrate(at(url), MORE, impatient)] == ["0002_more"]


async def test_a_runner_that_hangs_is_not_waited_for_without_end(empty_database_url: str) -> None:
    url = empty_database_url
    slow = {"0001_slow.sql": "SELECT pg_sleep(30)"}
    async with asyncio.TaskGroup() as group:
        hung = group.create_task(migrate(at(url), slow), name="hangs")
        while await count(url, "pg_locks WHERE locktype = 'advisory'") == 0:  # noqa: ASYNC110 - the server's
            await asyncio.sleep(0.01)
        with pytest.raises(DatabaseTimeout, match="another runner"):
            await migrate(at(url), JOBS, MigrateSettings(turn_deadline_s=0.1))
        hung.cancel()

    assert [str(m) for m in await within(migrate(at(url), JOBS))] == ["0001_jobs"]


async def test_a_setting_in_one_file_is_not_for_the_next(empty_database_url: str) -> None:
    files = {
        "0001_a.sql": "SET search_path TO pg_temp; SET statement_timeout TO '1h'",
        "0002_b.sql": "CREATE TABLE b AS SELECT current_setting('search_path') AS path",
    }
    await migrate(at(empty_database_url), files)

    assert await count(empty_database_url, "public.b") == 1
