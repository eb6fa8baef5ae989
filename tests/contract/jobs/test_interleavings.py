"""
Random programs of several replicas over one PostgreSQL, all at once and some cut off in the middle of a call.

Whatever happens in whatever order: no job is with two Pods, no Pod gets two jobs, no limit is exceeded, no job is lost.
The store is also broken on purpose, a lock or a fence at a time, and the programs must notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from remuda.adapters.postgres.jobs import PostgresJobs
from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from remuda.model.job import JobState, Os, Size
from remuda.ports.database import DatabaseError
from remuda.ports.jobs import Claimed, NoJob, NothingToDo, Released, Running, WarmRunner
from tests.support.jobs import Store, a_job, because, check_books, postgres_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from remuda.adapters.postgres.pool import Database
    from remuda.model.job import AuditEntry, Claim, JobSpec
    from remuda.ports.jobs import JobStore, Stale

JOBS = 40
PLAYERS = 10
PODS = 14
STEPS = 25
TENANTS = "abc"
ENDS_A_HOLD = {"released", "stopped", "requeued", "completed"}


def of_game(number: int) -> JobSpec:
    size = Size(1 + number % 3, 1024)
    return a_job(number, tenant=TENANTS[number % 3], repository=f"r/{number % 4}", size=size)


@pytest.fixture
async def databases(database_url: str) -> AsyncIterator[tuple[Database, Database]]:
    settings = DatabaseSettings(url=database_url, connections_min=6, connections_max=6)
    async with open_database(settings) as one, open_database(settings) as other:
        yield one, other


@dataclass(slots=True)
class Game:
    """What all players know: handles, also old ones, and the Pods that are alive."""

    replicas: tuple[JobStore, ...]
    store: Store
    chance: random.Random
    claims: list[Claim] = field(default_factory=list)
    runners: list[tuple[str, str]] = field(default_factory=list)
    lives: Counter[int] = field(default_factory=Counter)
    """How often each Pod was replaced."""
    let_go: Counter[Claim] = field(default_factory=Counter)

    def jobs(self) -> JobStore:
        return self.chance.choice(self.replicas)

    async def play(self) -> None:
        acts: tuple[Callable[[], Awaitable[object]], ...] = (
            *(self.ask, self.ask, self.ask, self.hand_over, self.hand_over, self.again),
            *(
                self.release,
                self.end,
                self.end,
                self.execute,
                self.execute,
                self.stop,
                self.sight,
                self.announce,
            ),
        )
        for _ in range(STEPS):
            act = self.chance.choice(acts)
            if self.chance.random() < 0.2:
                await self.cut_off(act)
            else:
                await act()

    async def cut_off(self, act: Callable[[], Awaitable[object]]) -> None:
        """Begin a call and leave in the middle of it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.chance.random() * 0.01):
                await act()

    async def ask(self) -> None:
        number = self.chance.randrange(PODS)
        pod = f"pod-{number}-{self.lives[number]}"
        answer = await self.jobs().claim(WarmRunner(pod, f"uid-{pod}", "linux"))
        if isinstance(answer, Claimed):
            self.claims.append(answer.claim)
        elif answer.reason is NoJob.POD_SPENT:
            self.lives[number] += 1

    def handle(self) -> Claim | None:
        return self.chance.choice(self.claims[-12:]) if self.claims else None

    async def hand_over(self) -> None:
        if (claim := self.handle()) is not None:
            name = f"r-{claim.pod}-{claim.claimed_at.timestamp()}"
            self.handed(claim, name, await self.jobs().mark_running(claim, name))

    async def again(self) -> None:
        if (claim := self.handle()) is not None:
            name = f"r-{claim.pod}-{self.chance.randrange(10**9)}"
            hour = timedelta(hours=1)
            self.handed(claim, name, await self.jobs().deliver_again(claim, name, within=hour))

    def handed(self, claim: Claim, name: str, answer: Running | Stale) -> None:
        if isinstance(answer, Running):
            assert answer.job.claim is not None
            assert answer.job.claim.claimed_at == claim.claimed_at, "an old handle delivers nothing"
            self.runners.append((name, answer.job.spec.tenant))

    async def release(self) -> None:
        if (claim := self.handle()) is not None:
            undelivered = self.chance.random() < 0.5
            answer = await self.jobs().release(claim, because(undelivered=undelivered))
            self.let_go[claim] += isinstance(answer, Released)
            assert self.let_go[claim] <= 1, "a handle releases once"

    async def execute(self) -> None:
        if self.runners:
            runner, tenant = self.chance.choice(self.runners[-8:])
            number = self.chance.randrange(JOBS)
            await self.store.executes(number, runner, tenant)

    async def end(self) -> None:
        number = self.chance.randrange(JOBS)
        runner, tenant = "", of_game(number).tenant
        if self.runners and self.chance.random() < 0.6:
            runner, tenant = self.chance.choice(self.runners[-8:])
        if of_game(number).tenant == tenant:
            await self.store.end(number, runner, tenant=tenant)

    async def stop(self) -> None:
        if (claim := self.handle()) is not None:
            await self.store.stop(claim.pod)

    async def sight(self) -> None:
        handles = self.claims[-5:]
        await self.jobs().sight_pods(present=handles[:2], absent=handles[2:], by="sweep")

    async def announce(self) -> None:
        await self.jobs().enqueue(of_game(self.chance.randrange(JOBS)), by="again")


WRONG = """
SELECT 'limit' FROM limits l WHERE used_vcpus > vcpus OR used_memory_mib > memory_mib OR used_vcpus <> coalesce(
    (SELECT sum(vcpus) FROM claims c WHERE c.tenant = l.tenant AND c.os = l.os), 0)
UNION ALL SELECT 'claimed without a claim' FROM jobs j
    WHERE state = 'claimed' AND NOT EXISTS (SELECT FROM claims c WHERE c.job_id = j.id AND c.claimed_at = j.claimed_at)
UNION ALL SELECT 'queued with a claim' FROM jobs j JOIN claims c ON c.job_id = j.id WHERE state = 'queued'
UNION ALL SELECT 'bound to another' FROM jobs j JOIN claims c ON c.job_id = j.id
    WHERE j.state IN ('claimed', 'running') AND (j.pod, j.claimed_at) <> (c.pod, c.claimed_at)
UNION ALL SELECT 'one token for two' FROM claims GROUP BY tenant, claimed_at HAVING count(*) > 1
UNION ALL SELECT 'two jobs of one claim' FROM jobs j JOIN claims c ON c.pod = j.pod AND c.claimed_at = j.claimed_at
    WHERE j.state IN ('claimed', 'running') AND c.job_id <> j.id
UNION ALL SELECT 'delivered without a session' FROM claims c
    WHERE delivered_at IS NOT NULL AND NOT EXISTS (SELECT FROM sessions s WHERE s.pod_uid = c.pod_uid)
"""


async def look_on(database: Database, done: asyncio.Event) -> None:
    """In no snapshot is anything wrong."""
    while not done.is_set():
        async with database.connection() as connection:
            assert await connection.fetch(WRONG) == []
        await asyncio.sleep(0.005)


async def play(databases: tuple[Database, Database], seed: int) -> Game:
    chance = random.Random(seed)  # noqa: S311 - a seed that replays, not a secret
    store = postgres_store(databases[0])
    replicas = tuple(PostgresJobs(d, store.clock) for d in databases * 3)
    game = Game(replicas, store, chance)
    for tenant in TENANTS:
        await store.jobs.set_limits(tenant, Os.LINUX, Size(8, 8 * 1024), by="test")
    await store.queue(*(of_game(n) for n in range(JOBS)))
    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(look_on(databases[1], done), name="watcher")
        players = [group.create_task(game.play(), name=f"player {n}") for n in range(PLAYERS)]
        await asyncio.wait(players)
        done.set()
    return game


async def judge(game: Game, database: Database) -> None:
    """Check everything that can be seen from outside, and that nothing is stuck."""
    await check_books(game.store.views)
    async with database.connection() as connection:
        assert await connection.fetch(WRONG) == []
    entries = await all_entries(game.store)
    check_holds(entries)
    check_pods(entries)
    known = await game.store.views.jobs(states=frozenset(JobState), limit=1000)
    assert {job.spec.id for job in known} == {f"forge/{n}" for n in range(JOBS)}
    await drain(game)


async def all_entries(store: Store) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    while page := await store.views.audit(after=entries[-1].number if entries else 0, limit=1000):
        entries.extend(page)
    return entries


def check_holds(entries: list[AuditEntry]) -> None:
    """Check that a job is claimed for a Pod only after the one that had it lost it, and that each loss is told."""
    holders: dict[str, str] = {}
    for entry in entries:
        if entry.what == "claimed":
            assert entry.job_id not in holders, entry
            holders[entry.job_id] = entry.pod
        elif entry.what == "moved":
            holders[entry.job_id] = entry.pod
        elif entry.what in ENDS_A_HOLD:
            holders.pop(entry.job_id, None)


def check_pods(entries: list[AuditEntry]) -> None:
    """Check that a Pod gets a job config once, unless its claim was given back before it had it."""
    running: set[str] = set()
    for entry in entries:
        if entry.what == "running":
            assert entry.pod not in running, entry
            running.add(entry.pod)
        elif entry.what == "released":
            running.discard(entry.pod)


async def drain(game: Game) -> None:
    """With every Pod gone and the sweeps done, all that is not over can be claimed, run and ended."""
    store = game.store
    for live in await store.views.claims():
        await store.stop(live.claim.pod)
    for job in await store.views.jobs(states={JobState.RUNNING}, limit=1000):
        assert job.claim is not None
        await store.jobs.release(job.claim, because("the forge says that it waits"))
    for number in range(2 * JOBS):
        answer = await store.jobs.claim(WarmRunner(f"last-{number}", f"uid-l{number}", "linux"))
        if not isinstance(answer, Claimed):
            assert answer == NothingToDo(NoJob.EMPTY)
            break
        running = await store.jobs.mark_running(answer.claim, f"r-last-{number}")
        assert isinstance(running, Running)
        spec = running.job.spec
        await store.end(int(spec.id.split("/")[1]), f"r-last-{number}", tenant=spec.tenant)
    left = await store.views.jobs(states=frozenset(JobState), limit=1000)
    assert all(job.state.over for job in left)
    assert await store.views.claims() == ()


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_in_whatever_order_no_job_is_lost_or_run_twice(
    databases: tuple[Database, Database], seed: int
) -> None:
    game = await play(databases, seed)
    await judge(game, databases[0])
    assert len(game.claims) > 10
    assert game.runners


BREAKS = {
    "limits are not locked": ("claim_open", "FOR UPDATE SKIP LOCKED", ""),
    "a release takes any token": (
        "release_claim",
        (
            "OR live.pod_uid <> p_pod_uid OR live.claimed_at <> p_token\n"
            "        OR (job.tenant, job.os) <> (live.tenant, live.os)"
        ),
        "",
    ),
    "a delivery takes any token": (
        "deliver_job",
        "OR live.pod_uid <> p_pod_uid OR live.claimed_at <> p_token",
        "",
    ),
    "a Pod gets a second job": ("claim_pods", "s.pod_uid = p.pod_uid", "false"),
    "an end gives no claim back": ("complete_job", "DELETE FROM claims WHERE pod = freed.pod;", ""),
    "a runner that runs another job keeps the first": (
        "attribute_job",
        "requeue_job(first.id, live.claimed_at, NULL)",
        "true",
    ),
}


@pytest.mark.parametrize(("function", "old", "new"), BREAKS.values(), ids=BREAKS.keys())
async def test_a_store_that_lacks_a_lock_or_a_fence_is_noticed(
    databases: tuple[Database, Database], function: str, old: str, new: str
) -> None:
    await break_function(databases[0], function, old, new)
    with pytest.raises((AssertionError, ExceptionGroup, asyncpg.PostgresError, DatabaseError)):
        await play_often(databases)


async def play_often(databases: tuple[Database, Database]) -> None:
    for seed in range(25):
        game = await play(databases, seed)
        await judge(game, databases[0])
        await wipe(databases[0])


async def break_function(database: Database, name: str, old: str, new: str) -> None:
    async with database.connection() as connection:
        source = await connection.fetchval(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = $1", name
        )
        assert old in source
        await connection.execute(source.replace(old, new))


async def wipe(database: Database) -> None:
    tables = "jobs, claims, sessions, completions, limits, decisions"
    async with database.connection() as connection:
        await connection.execute(f"TRUNCATE {tables}")
