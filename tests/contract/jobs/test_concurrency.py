"""Many connections at once on a real PostgreSQL: no job twice, no Pod twice, no limit exceeded, no job lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.jobs import PostgresJobs
from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from remuda.model.job import JobSpec, JobState, Os, Size
from remuda.ports.jobs import Claimed, NoJob, NothingToDo, Running, WarmRunner
from tests.support.jobs import Store, a_job, because, check_books, postgres_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.adapters.postgres.pool import Database
    from remuda.model.job import Claim
    from remuda.ports.jobs import JobStore

CONNECTIONS = 12
PATIENT = timedelta(seconds=5)
"""How long these claims wait for each other, where the test is not about that: a slow machine must not matter."""


@pytest.fixture
async def wide(database_url: str) -> AsyncIterator[Database]:
    settings = DatabaseSettings(
        url=database_url, connections_min=CONNECTIONS, connections_max=CONNECTIONS
    )
    async with open_database(settings) as opened:
        yield opened


@pytest.fixture
def real(wide: Database) -> Store:
    store = postgres_store(wide)
    patient = PostgresJobs(wide, store.clock, wait=PATIENT)
    return replace(store, jobs=patient)


def warm(pod: str, pool: str = "linux") -> WarmRunner:
    return WarmRunner(pod, f"uid-{pod}", pool)


async def claim_all(jobs: JobStore, pods: int) -> list[Claimed | NothingToDo]:
    return await asyncio.gather(*(jobs.claim(warm(f"pod-{n}")) for n in range(pods)))


async def test_simultaneous_claims_never_exceed_a_limit(real: Store) -> None:
    await real.limit(vcpus=10)
    await real.queue(*(a_job(n) for n in range(40)))
    answers = await claim_all(real.jobs, 40)
    won = [answer for answer in answers if isinstance(answer, Claimed)]
    assert len(won) == 5
    assert Counter(a.reason for a in answers if isinstance(a, NothingToDo)) == {NoJob.CAPPED: 35}
    assert (await real.views.standings())[0].room.vcpus == 0
    await check_books(real.views)


async def test_simultaneous_claims_take_each_job_once_and_leave_none(real: Store) -> None:
    for tenant in ("a", "b", "c"):
        await real.limit(tenant, vcpus=1000)
    await real.queue(*(a_job(n, tenant="abc"[n % 3]) for n in range(60)))
    answers = await claim_all(real.jobs, 80)
    won = [answer for answer in answers if isinstance(answer, Claimed)]
    assert len({answer.job.spec.id for answer in won}) == len(won) == 60
    tokens = {(answer.job.spec.tenant, answer.claim.claimed_at) for answer in won}
    assert len(tokens) == 60
    await check_books(real.views)


async def test_a_pod_that_asks_many_times_at_once_gets_one_job(real: Store) -> None:
    await real.limit(vcpus=100)
    await real.limit("other", vcpus=100)
    await real.queue(*(a_job(n, tenant=("acme", "other")[n % 2]) for n in range(20)))
    for _ in range(5):
        answers = await asyncio.gather(*(real.jobs.claim(warm("one")) for _ in range(12)))
        won = [answer for answer in answers if isinstance(answer, Claimed)]
        assert len(won) == 1
        rest = {answer.reason for answer in answers if isinstance(answer, NothingToDo)}
        assert rest == {NoJob.POD_IN_USE}
        await real.jobs.release(won[0].claim, because(undelivered=True))
    await check_books(real.views)


async def test_a_tenant_that_is_being_claimed_for_holds_up_nobody_else(
    wide: Database, real: Store
) -> None:
    at_once = PostgresJobs(wide, real.clock, wait=timedelta(0))
    await real.limit("slow")
    await real.limit("slow", os=Os.DARWIN)
    await real.limit("other")
    await real.queue(a_job(1, tenant="slow"), a_job(2, tenant="slow", os=Os.DARWIN, pool="mac"))
    async with wide.transaction() as blocker:
        await blocker.execute(
            "SELECT * FROM limits WHERE tenant = 'slow' AND os = 'linux' FOR UPDATE"
        )
        assert await at_once.claim(warm("a")) == NothingToDo(NoJob.BUSY)
        assert isinstance(await at_once.claim(warm("b", "mac")), Claimed)
        await real.queue(a_job(3, tenant="other"))
        answer = await at_once.claim(warm("c"))
        assert isinstance(answer, Claimed)
        assert answer.job.spec.tenant == "other"
    assert isinstance(await at_once.claim(warm("a")), Claimed)


async def test_a_claim_waits_for_its_tenant_only_so_long(wide: Database, real: Store) -> None:
    brief = PostgresJobs(wide, real.clock, wait=timedelta(milliseconds=20))
    await real.limit()
    await real.queue(a_job(1))
    async with wide.transaction() as blocker:
        await blocker.execute("SELECT * FROM limits FOR UPDATE")
        assert await brief.claim(warm("a")) == NothingToDo(NoJob.BUSY)
        waiting = asyncio.gather(real.jobs.claim(warm("b")))
        await blocker.execute("SELECT pg_sleep(0.05)")
    (answer,) = await waiting
    assert isinstance(answer, Claimed)


async def test_a_claim_waits_for_no_tenant_while_it_holds_another(
    wide: Database, real: Store
) -> None:
    await real.limit("full", vcpus=3)
    await real.limit("slow")
    await real.queue(a_job(1, tenant="full"), a_job(2, tenant="full"))
    await real.take("a")
    await real.queue(a_job(3, tenant="slow"))
    lock = "SELECT * FROM limits WHERE tenant = $1 FOR UPDATE"
    async with wide.transaction() as other, asyncio.TaskGroup() as tasks:
        await other.execute(lock, "slow")
        # It looks into "full", where nothing fits, and must not keep that while it waits for "slow".
        asked = tasks.create_task(real.jobs.claim(warm("b")), name="ask")
        while not asked.done() and not await waiters(wide):  # noqa: ASYNC110 - a lock rings no bell
            await asyncio.sleep(0.01)
        await other.execute(lock, "full")
    assert asked.result() == NothingToDo(NoJob.BUSY)


async def waiters(wide: Database) -> int:
    async with wide.connection() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def test_a_job_that_is_being_changed_is_passed_over(wide: Database, real: Store) -> None:
    await real.limit()
    await real.queue(a_job(1), a_job(2, repository="acme/other"))
    async with wide.transaction() as blocker:
        await blocker.execute("SELECT * FROM jobs WHERE id = 'forge/1' FOR UPDATE")
        assert (await real.take("a")).job.spec.id == "forge/2"
        assert await real.jobs.claim(warm("b")) == NothingToDo(NoJob.LOST_RACE)
    assert (await real.take("b")).job.spec.id == "forge/1"


async def test_an_announcement_that_races_the_end_of_its_job_brings_nothing_back(
    real: Store,
) -> None:
    calls = []
    for number in range(40):
        calls += [real.jobs.enqueue(a_job(number), by="webhook"), real.end(number)]
    await asyncio.gather(*calls)
    for number in range(40):
        job = await real.views.job(f"forge/{number}")
        assert job is None or job.state.over
    assert await real.views.jobs(states={JobState.QUEUED}) == ()


async def test_messages_that_swap_jobs_crosswise_at_once_leave_every_job_right(real: Store) -> None:
    await real.limit(vcpus=1000)
    pairs = 12
    await real.queue(*(a_job(n) for n in range(2 * pairs)))
    for number in range(2 * pairs):
        await real.run(f"{number}")
    # Each runner of a pair runs the other's job, and both messages arrive at once, twice.
    swapped = [(n, f"r-{n ^ 1}") for n in range(2 * pairs)]
    await asyncio.gather(*(real.executes(n, runner) for n, runner in swapped + swapped))
    for number, runner in swapped:
        job = await real.job(number)
        assert (job.state, job.runner_name) == (JobState.RUNNING, runner)
    await check_books(real.views)
    await asyncio.gather(*(real.end(n, runner) for n, runner in swapped))
    assert await real.views.claims() == ()
    await check_books(real.views)


class Storm:
    """What a fleet does, all at once and in no order: each task plays Pods, messages and sweeps at random."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)  # noqa: S311 - a seed that replays, not a secret
        self.delivered: Counter[str] = Counter()
        self.claims: list[Claim] = []

    async def pod(self, name: str) -> None:
        """Live one Pod's life."""
        answer = await self.store.jobs.claim(warm(name))
        if not isinstance(answer, Claimed):
            return
        self.claims.append(answer.claim)
        fate = self.chance.random()
        if fate < 0.2:
            await self.store.jobs.release(answer.claim, because(undelivered=True))
            return
        running = await self.store.jobs.mark_running(answer.claim, f"r-{name}")
        if not isinstance(running, Running):
            await self.store.jobs.release(answer.claim, because(undelivered=True))
            return
        self.delivered[name] += 1
        ran = running.job.spec if fate < 0.6 else a_job(self.chance.randrange(60))
        number, tenant = int(ran.id.removeprefix("forge/")), running.job.spec.tenant
        if fate < 0.9:
            await self.store.executes(number, f"r-{name}", tenant)
            await self.store.end(number, f"r-{name}", tenant=tenant)
        await self.store.stop(name)

    async def noise(self) -> None:
        """Repeat what was said before, out of order, and sweep with old handles."""
        for _ in range(30):
            number = self.chance.randrange(60)
            await self.store.jobs.enqueue(of_storm(number), by="again")
            if self.claims:
                await self.store.jobs.release(self.chance.choice(self.claims), because("sweep"))
            if self.chance.random() < 0.1:
                tenant = of_storm(number).tenant
                await self.store.end(number, tenant=tenant, conclusion="cancelled")

    async def watch(self, wide: Database, done: asyncio.Event) -> int:
        """Look on: in no snapshot does a tenant hold more than its limit."""
        looks = 0
        while not done.is_set():
            async with wide.connection() as connection:
                over = await connection.fetch(
                    "SELECT tenant FROM limits l WHERE used_vcpus > vcpus OR used_vcpus <> coalesce("
                    "(SELECT sum(vcpus) FROM claims c WHERE c.tenant = l.tenant AND c.os = l.os), 0)"
                )
            assert over == []
            looks += 1
            await asyncio.sleep(0.01)
        return looks


def of_storm(number: int) -> JobSpec:
    return a_job(number, tenant="abc"[number % 3], repository=f"r/{number % 5}")


@pytest.mark.parametrize("seed", range(4))
async def test_a_storm_loses_no_job_and_delivers_none_to_two_lives_of_a_pod(
    wide: Database, real: Store, seed: int
) -> None:
    for tenant in "abc":
        await real.jobs.set_limits(tenant, Os.LINUX, Size(8, 8 * 4096), by="test")
    await real.queue(*(of_storm(n) for n in range(60)))
    storm, done = Storm(real, seed), asyncio.Event()
    watching = asyncio.gather(storm.watch(wide, done))
    for wave in range(6):
        pods = [storm.pod(f"{wave}-{n}") for n in range(25)]
        await asyncio.gather(*pods, storm.noise())
    done.set()
    assert (await watching)[0] > 3
    await check_books(real.views)
    assert max(storm.delivered.values()) == 1
    jobs = await real.views.jobs(states=frozenset(JobState), limit=1000)
    assert {job.spec.id for job in jobs} >= {f"forge/{n}" for n in range(60)}
    assert await deadlocks(wide) == 0
    # Nothing is stuck: with every Pod gone and the sweeps done, all that is not over can be claimed and ended.
    await drain(real)


async def deadlocks(wide: Database) -> int:
    """Return how often PostgreSQL had to break a circle of locks: they are all taken in one order."""
    async with wide.connection() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        return int(await connection.fetchval(counted))


async def drain(store: Store) -> None:
    for live in await store.views.claims():
        await store.stop(live.claim.pod)
    for job in await store.views.jobs(states={JobState.RUNNING}, limit=1000):
        assert job.claim is not None
        await store.jobs.release(job.claim, because("the forge says that it waits"))
    assert await store.views.claims() == ()
    for number in range(200):
        answer = await store.jobs.claim(warm(f"drain-{number}"))
        if not isinstance(answer, Claimed):
            assert answer == NothingToDo(NoJob.EMPTY)
            break
        running = await store.jobs.mark_running(answer.claim, f"r-drain-{number}")
        assert isinstance(running, Running)
        spec = running.job.spec
        number_ = int(spec.id.removeprefix("forge/"))
        await store.end(number_, f"r-drain-{number}", tenant=spec.tenant)
    jobs = await store.views.jobs(states=frozenset(JobState), limit=1000)
    assert all(job.state.over for job in jobs)
    await check_books(store.views)
