"""Two versions of the server on one queue: a job is handed out by those alone that know of all that it needs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.jobs import PostgresJobs
from remuda.model.needs import KNOWN, Need
from remuda.ports.jobs import Claimed, NoJob, NothingToDo, WarmRunner
from tests.support.eventually import eventually
from tests.support.jobs import START
from tests.support.local_jobs import an_end, postgres_local
from tests.support.local_shop import LocalShop

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database

BEFORE = {
    "before files": "claim_jobs('linux', '{POD}', '{uid-POD}', now(), '1 h', 50, '{}', '{}', '{}')",
    "before needs": "claim_jobs('linux', '{POD}', '{uid-POD}', '{r}', now(), '1 h', 50, '{}', '{}', '{}')",
}
"""How replicas of versions before this one claim: as they said it then."""
ENDED_BEFORE = (
    "UPDATE local_jobs SET ended_at = $1, conclusion = 'success', script = NULL, env = NULL"
)
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def claimed_before(database: Database, how: str, pod: str) -> tuple[str, str | None]:
    claim = BEFORE[how].replace("POD", pod)
    async with database.connection() as c:
        row = await c.fetchrow(f"SELECT outcome, (job).id FROM {claim}")  # noqa: S608 - ours
    assert row is not None
    return row["outcome"], row["id"]


@pytest.mark.parametrize("how", BEFORE)
async def test_a_replica_of_a_version_before_passes_over_a_job_with_files(
    database: Database, how: str
) -> None:
    shop = LocalShop(postgres_local(database))
    with_files = await shop.post(download=("dist",))
    plain = await shop.post()

    assert await claimed_before(database, how, "old-1") == ("claimed", plain.job_id)
    assert await claimed_before(database, how, "old-2") == ("held", None)

    minted = await shop.hand_over()
    assert minted.download == ("dist",)
    assert (await shop.kept(with_files.job_id)).needs == {Need.FILES.value}


async def test_a_replica_of_a_version_before_passes_over_a_job_with_files_that_comes_while_it_claims(
    database: Database,
) -> None:
    """Between its look at what jobs need and its look at jobs others may add some: it waits for a limit, say."""
    shop = LocalShop(postgres_local(database))
    plain = await shop.post()
    claim = "claim_jobs('linux', '{a,b}', '{uid-a,uid-b}', '{r,s}', now(), '1 h', 60000, '{}', '{}', '{}')"

    async def old() -> list[tuple[str, str | None]]:
        async with database.connection() as c:
            rows = await c.fetch(f"SELECT outcome, (job).id FROM {claim} ORDER BY place")  # noqa: S608 - ours
        return [(row["outcome"], row["id"]) for row in rows]

    async def waits() -> bool:
        async with database.connection() as c:
            return bool(await c.fetchval(WAITS))

    async with asyncio.TaskGroup() as group, database.transaction() as c:
        await c.execute("SELECT FROM limits WHERE tenant = 'local' FOR UPDATE")
        claiming = group.create_task(old())
        await eventually(waits, within_s=50)
        with_files = await shop.post(download=("dist",))

    assert claiming.result() == [("claimed", plain.job_id), ("held", None)]
    assert (await shop.kept(with_files.job_id)).needs == {Need.FILES.value}
    assert (await shop.hand_over("new")).download == ("dist",)


async def test_a_job_that_needs_something_newer_waits_for_who_knows_of_it(
    database: Database,
) -> None:
    shop = LocalShop(postgres_local(database))
    posted = await shop.post(download=("dist",))
    async with database.connection() as c:
        await c.execute("INSERT INTO job_needs VALUES ($1, 'wings')", posted.job_id)
    runner = WarmRunner("linux-a", "uid-linux-a", "linux")
    newer = PostgresJobs(database, shop.clock, knows=KNOWN | {"wings"})

    answer = await shop.store.claim(runner)
    assert isinstance(answer, NothingToDo)
    assert answer.reason is NoJob.HELD
    assert isinstance(await newer.claim(runner), Claimed)


async def test_what_a_job_needs_is_forgotten_with_its_end(database: Database) -> None:
    shop = LocalShop(postgres_local(database))
    posted = await shop.post(download=("dist",))
    await shop.local.end(posted.job_id, an_end())

    assert (await shop.kept(posted.job_id)).needs == frozenset()
    async with database.connection() as c:
        assert await c.fetchval("SELECT count(*) FROM job_needs") == 0


async def test_what_a_job_needs_that_an_older_replica_ended_is_forgotten_with_the_job(
    database: Database,
) -> None:
    shop = LocalShop(postgres_local(database))
    posted = await shop.post(download=("dist",))
    async with database.connection() as c:
        await c.execute(ENDED_BEFORE, START)

    assert await shop.local.forget(ended_before=START + timedelta(days=1), limit=10) == 1

    assert await shop.local.get(posted.job_id) is None
    async with database.connection() as c:
        assert await c.fetchval("SELECT count(*) FROM job_needs") == 0
