"""What must never be is refused by the schema itself, and whoever waits is told of new work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.support.jobs import START, Store, a_job, because, postgres_store

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database


@pytest.fixture
async def filled(database: Database) -> Store:
    """Make a store with one job over, one running, one claimed and one waiting."""
    store = postgres_store(database)
    await store.limit(vcpus=4)
    await store.queue(*(a_job(n) for n in range(1, 5)))
    await store.run("a")
    await store.end(1, "r-a")
    await store.stop("a")
    await store.run("b")
    await store.take("c")
    return store


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        pytest.param(
            "UPDATE jobs SET name = 'x' WHERE id = 'forge/1'",
            "a job that is over never changes",
            id="a job that is over is changed",
        ),
        pytest.param(
            "DELETE FROM jobs WHERE id = 'forge/4'",
            "a job that is not over is never deleted",
            id="a waiting job is deleted",
        ),
        pytest.param(
            "UPDATE jobs SET queued_at = now() WHERE id = 'forge/4'",
            "a job keeps its place, its tenant and its pool",
            id="a job loses its place",
        ),
        pytest.param(
            "DELETE FROM jobs WHERE id = 'forge/1'; "
            "INSERT INTO jobs (id, kind, tenant, repository, pool, os, vcpus, memory_mib, label, labels, name, "
            "workflow, branch, commit, url, fork, queued_at, state) VALUES "
            "('forge/1', 'github', 't', '', 'p', 'linux', 1, 1, '', '{}', '', '', '', '', '', false, now(), 'queued')",
            "the job forge/1 is over and does not come back",
            id="a job that is over comes back",
        ),
        pytest.param(
            "UPDATE jobs SET state = 'running' WHERE id = 'forge/4'",
            "jobs_state",
            id="a job runs nowhere",
        ),
        pytest.param(
            "UPDATE jobs SET state = 'lost' WHERE id = 'forge/4'", "jobs_state", id="a new state"
        ),
        pytest.param(
            "UPDATE limits SET used_vcpus = 5",
            "a tenant never gets more than its limit",
            id="a limit is exceeded",
        ),
        pytest.param(
            "UPDATE limits SET used_vcpus = -1",
            "limits_room_given_back_once",
            id="room is given back twice",
        ),
        pytest.param(
            "DELETE FROM limits",
            "a limit that is in use is not deleted",
            id="a limit in use is deleted",
        ),
        pytest.param(
            "UPDATE claims SET vcpus = 1",
            "a claim keeps its Pod, its token and its room",
            id="a claim changes what it takes",
        ),
        pytest.param(
            "UPDATE claims SET claimed_at = now()",
            "a claim keeps its Pod, its token and its room",
            id="a token changes",
        ),
        pytest.param(
            "INSERT INTO claims (job_id, pod, pod_uid, claimed_at, tenant, repository, pool, os, vcpus, memory_mib) "
            "VALUES ('forge/4', 'b', 'uid-x', now(), 'acme', '', 'linux', 'linux', 1, 1)",
            "claims_one_per_pod",
            id="a Pod is claimed for twice",
        ),
        pytest.param(
            "INSERT INTO claims (job_id, pod, pod_uid, claimed_at, tenant, repository, pool, os, vcpus, memory_mib) "
            "VALUES ('forge/2', 'x', 'uid-x', now(), 'acme', '', 'linux', 'linux', 1, 1)",
            "claims_pkey",
            id="a job is claimed twice",
        ),
        pytest.param(
            "UPDATE sessions SET ended_at = now() + interval '1 year' WHERE pod = 'a'",
            "the end of a session may only move forward in time, never back",
            id="a session is prolonged",
        ),
        pytest.param(
            "UPDATE completions SET conclusion = 'failure'",
            "how a job ended never changes",
            id="an end is rewritten",
        ),
        pytest.param(
            "UPDATE decisions SET why = ''",
            "the audit is only appended to",
            id="the audit is rewritten",
        ),
        pytest.param(
            "DELETE FROM decisions", "the audit is kept for 30 days", id="the audit is deleted"
        ),
    ],
)
async def test_the_schema_refuses(
    database: Database, filled: Store, statement: str, rule: str
) -> None:
    await _make_recent(database)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match=rule):
        async with database.transaction() as connection:
            await connection.execute(statement)
    assert await filled.views.job("forge/4") is not None


async def _make_recent(database: Database) -> None:
    """Add an audit entry of today: the tests' clock stands in the past."""
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO decisions (at, who, what, why, job_id, pod, tenant, pool) "
            "VALUES (now(), 'test', 'x', 'y', '', '', '', '')"
        )


async def test_no_column_is_made_for_a_secret(database: Database) -> None:
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        )
    # Of a token only its digest is kept, so the name of that table says no more than it should.
    names = {f"{row['table_name']}.{row['column_name']}" for row in rows}
    names = {name.replace("api_tokens.", "") for name in names}
    assert {"jobs.id", "claims.claimed_at", "sessions.pod_uid"} <= names
    words = ("jit", "token", "secret", "password", "config", "credential", "key")
    assert [name for name in sorted(names) if any(word in name for word in words)] == []


class Listener:
    """Hears what PostgreSQL tells of new work."""

    def __init__(self) -> None:
        self.pools: list[str] = []

    def __call__(self, *heard: object) -> None:
        self.pools.append(str(heard[-1]))

    async def heard(self, connection: asyncpg.Connection[asyncpg.Record]) -> list[str]:
        """Return what was heard so far: a round trip later all of it has arrived."""
        await connection.execute("SELECT 1")
        await asyncio.sleep(0)
        told, self.pools = self.pools, []
        return told


async def test_pools_hear_of_each_job_that_they_could_claim(database: Database) -> None:
    store, listener = postgres_store(database), Listener()
    async with database.dedicated() as connection:
        await connection.add_listener("remuda_jobs", listener)
        await store.limit(vcpus=2)
        await store.queue(a_job(1))
        assert await listener.heard(connection) == ["linux"]
        await store.queue(a_job(1), a_job(2, pool="mac"))
        assert await listener.heard(connection) == ["mac"]
        claimed = await store.take("a")
        assert await listener.heard(connection) == []
        await store.jobs.release(claimed.claim, because())
        assert sorted(set(await listener.heard(connection))) == ["linux", "mac"]
        running = await store.run("b")
        await store.end(1, "r-b")
        assert await listener.heard(connection) == ["mac"]
        assert running.job.spec.queued_at > START
        await store.limit(vcpus=9)
        assert await listener.heard(connection) == ["mac"]
