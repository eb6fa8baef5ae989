"""What people, tools and the hub of polls read: lists from the newest on, what could be claimed, and the audit."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.model.job import JobState, Os, Size
from remuda.ports.job_views import CLAIMABLE_MAX, JobFilter, Queue
from tests.support.jobs import Store, a_job, because, postgres_store

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param(JobFilter(), [5, 4, 3, 2, 1], id="everything"),
        pytest.param(JobFilter(pool="mac"), [5, 3], id="one pool"),
        pytest.param(JobFilter(tenant="other"), [5, 4], id="one tenant"),
        pytest.param(JobFilter(repository="acme/lib"), [2], id="one repository"),
        pytest.param(JobFilter(states=frozenset({JobState.CLAIMED})), [1], id="one state"),
        pytest.param(JobFilter(pool="mac", tenant="other"), [5], id="both must hold"),
        pytest.param(JobFilter(pool="nowhere"), [], id="nothing is there"),
    ],
)
async def test_jobs_are_listed_newest_first(
    store: Store, wanted: JobFilter, found: list[int]
) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2, repository="acme/lib"), a_job(3, pool="mac"))
    await store.queue(a_job(4, tenant="other"), a_job(5, tenant="other", pool="mac"))
    await store.take("a")
    listed = await store.views.newest(wanted)
    assert [job.spec.id for job in listed] == [f"forge/{n}" for n in found]


async def test_pages_from_the_newest_on_neither_skip_nor_repeat(store: Store) -> None:
    same = a_job(0).queued_at
    await store.queue(*(a_job(n, queued_at=same) for n in range(1, 6)), a_job(9))
    pages, before = [], None
    while page := await store.views.newest(JobFilter(), before=before, limit=2):
        pages.append([job.spec.id for job in page])
        before = (page[-1].spec.queued_at, page[-1].spec.id)
    assert pages == [["forge/9", "forge/5"], ["forge/4", "forge/3"], ["forge/2", "forge/1"]]


async def test_each_pool_says_how_many_jobs_could_be_handed_out(store: Store) -> None:
    await store.limit(vcpus=4)
    await store.limit("other", vcpus=2)
    await store.queue(a_job(1), a_job(2), a_job(3), a_job(4, tenant="other"))
    await store.queue(a_job(5, pool="mac"), a_job(6, pool="gpu", tenant="nobody"))
    assert await store.views.claimable() == {"linux": 3, "mac": 1}


async def test_what_is_held_or_too_large_or_capped_could_not_be_handed_out(store: Store) -> None:
    await store.limit(vcpus=4)
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    later = store.clock.now() + timedelta(seconds=30)
    await store.jobs.release(claim, because(hold_until=later))
    await store.queue(a_job(2, size=Size(64, 64)))
    assert await store.views.claimable() == {}
    store.clock.forward(30)
    assert await store.views.claimable() == {"linux": 1}
    await store.limit(vcpus=0)
    assert await store.views.claimable() == {}


async def test_a_job_that_fits_is_seen_behind_those_that_do_not(store: Store) -> None:
    await store.limit(vcpus=4)
    await store.queue(*(a_job(n, size=Size(64, 64)) for n in range(120)), a_job(999))
    assert await store.views.claimable() == {"linux": 1}


async def test_no_more_than_a_hundred_are_counted(store: Store) -> None:
    await store.limit(vcpus=1000)
    await store.queue(*(a_job(n) for n in range(CLAIMABLE_MAX + 5)))
    await store.limit(vcpus=1000, os=Os.DARWIN)
    await store.queue(a_job(1000, pool="mac", os=Os.DARWIN))
    assert await store.views.claimable() == {"linux": CLAIMABLE_MAX, "mac": 1}


async def test_the_audit_is_followed_by_its_numbers(store: Store) -> None:
    assert await store.views.audit_end() == 0
    await store.queue(a_job(1), a_job(2))
    first = await store.views.audit(limit=1)
    assert [entry.job_id for entry in first] == ["forge/1"]
    rest = await store.views.audit(after=first[-1].number)
    assert [entry.job_id for entry in rest] == ["forge/2"]
    assert await store.views.audit_end() == rest[-1].number
    assert await store.views.audit(after=rest[-1].number) == ()


WRITTEN = (
    "INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool) "
    "VALUES (now(), 'test', $1, '', '', '', '', '') RETURNING number"
)


async def test_an_entry_that_is_committed_late_is_not_skipped(database: Database) -> None:
    views = postgres_store(database).views
    async with database.transaction() as early:
        # This one has a transaction's number before the slow one, and gets an entry's number after it.
        await early.fetchval("SELECT pg_current_xact_id()::text")
        async with database.transaction() as slow:
            first = await slow.fetchval(WRITTEN, "slow")
            second = await early.fetchval(WRITTEN, "early")
            assert first < second
            async with database.transaction() as quick:
                await quick.fetchval(WRITTEN, "quick")
            assert await views.audit() == ()
            assert await views.audit_end() < first
    said = [entry.what for entry in await views.audit()]
    assert said == ["slow", "early", "quick"]


async def test_followers_of_the_audit_miss_none_of_what_many_write_at_once(
    database: Database,
) -> None:
    store = postgres_store(database)
    seen: list[int] = []

    async def follow() -> None:
        while len(seen) < 200:
            page = await store.views.audit(after=seen[-1] if seen else 0, limit=7)
            seen.extend(entry.number for entry in page)
            await asyncio.sleep(0)

    async def write(first: int) -> None:
        for number in range(first, first + 25):
            await store.jobs.enqueue(a_job(number), by="test")

    async with asyncio.timeout(60):
        await asyncio.gather(follow(), *(write(100 * n) for n in range(8)))
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT number FROM decisions ORDER BY number")
    assert seen == [row["number"] for row in rows]


async def test_each_queue_is_told_with_what_is_held_back(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(2), a_job(1), a_job(3, pool="mac"))
    claim = (await store.take("a")).claim
    later = store.clock.now() + timedelta(minutes=1)
    await store.jobs.release(claim, because(hold_until=later))
    assert await store.views.queues() == {
        "linux": Queue(2, a_job(1).queued_at),
        "mac": Queue(1, a_job(3).queued_at),
    }
    await store.take("b")
    assert (await store.views.queues())["linux"].count == 1


async def test_repositories_are_told_by_their_newest_job(store: Store) -> None:
    await store.queue(
        a_job(1, repository="old"), a_job(5, repository="b"), a_job(9, repository="a")
    )
    await store.queue(a_job(6, repository="c"), a_job(3, repository="c"))
    await store.end(9)
    since = a_job(5).queued_at
    assert await store.views.recent_repositories(since=since, limit=9) == ("a", "c", "b")
    assert await store.views.recent_repositories(since=since, limit=1) == ("a",)
