"""The store in memory answers as PostgreSQL does, step by step, whatever happens in whatever order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from remuda.model.job import JobState, Os, Size
from remuda.ports.deliveries import Delivery
from remuda.ports.jobs import Claimed, WarmRunner, Without
from tests.support.jobs import (
    START,
    Store,
    a_job,
    because,
    check_books,
    memory_store,
    postgres_store,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.adapters.postgres.pool import Database
    from remuda.model.job import Claim, JobSpec
    from tests.support.postgres import Server

TENANTS = ("acme", "bolt")
POOLS = ("linux", "mac")
JOBS = 6
PODS = 4


class Step(NamedTuple):
    """Something that happens, with three numbers to choose by."""

    what: str
    job: int
    pod: int
    flag: bool


STEPS = (
    *("enqueue", "claim", "claim", "mark", "mark", "again", "release", "executes", "end", "stop"),
    *("sight", "limit", "pass", "drop", "deliver", "work"),
)
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(STEPS),
        st.integers(0, JOBS - 1),
        st.integers(0, PODS - 1),
        st.booleans(),
    ),
    min_size=15,
    max_size=60,
)


def job_spec(number: int) -> JobSpec:
    darwin = number % 3 == 2
    tenant = TENANTS[number % 2]
    return a_job(
        number,
        tenant=tenant,
        repository=f"{tenant}/{number % 4}",
        pool=POOLS[darwin],
        os=Os.DARWIN if darwin else Os.LINUX,
        size=Size(1 + number % 2, 1024 * (1 + number % 3)),
        queued_at=START + timedelta(seconds=number // 2),
    )


@dataclass(slots=True)
class Player:
    """Plays steps on one store. What it remembers is what callers would: handles, also old ones."""

    store: Store
    claims: list[Claim] = field(default_factory=list)
    lives: dict[int, int] = field(default_factory=dict)
    """How often each Pod was replaced: a new one has a new name and UID."""

    def pod(self, number: int) -> str:
        return f"pod-{number}-{self.lives.get(number, 0)}"

    async def play(self, step: Step) -> object:
        acts: dict[str, Callable[[Step], Awaitable[object]]] = {
            "enqueue": self._enqueue,
            "claim": self._claim,
            "mark": self._mark,
            "again": self._again,
            "release": self._release,
            "executes": self._executes,
            "end": self._end,
            "stop": self._stop,
            "sight": self._sight,
            "limit": self._limit,
            "pass": self._pass,
            "drop": self._drop,
            "deliver": self._deliver,
            "work": self._work,
        }
        return await acts[step.what](step)

    async def _enqueue(self, step: Step) -> object:
        return await self.store.jobs.enqueue(job_spec(step.job), by="test")

    async def _claim(self, step: Step) -> object:
        name = self.pod(step.pod)
        without = Without(jobs=frozenset({f"forge/{step.job}"}) if step.flag else frozenset())
        runner = WarmRunner(name, f"uid-{name}", POOLS[step.pod % 3 == 2])
        answer = await self.store.jobs.claim(runner, without=without)
        if isinstance(answer, Claimed):
            self.claims.append(answer.claim)
        return answer

    def _handle(self, number: int) -> Claim | None:
        """Return one of the newest handles: often a live one, sometimes an old one."""
        newest = self.claims[-4:]
        return newest[number % len(newest)] if newest else None

    async def _mark(self, step: Step) -> object:
        claim = self._handle(step.pod)
        if claim is None:
            return None
        name = f"r-{claim.pod}" if step.flag else f"r-{claim.pod}-{step.job}"
        return await self.store.jobs.mark_running(claim, name)

    async def _again(self, step: Step) -> object:
        claim = self._handle(step.pod)
        if claim is None:
            return None
        name = f"r-{claim.pod}-{len(self.claims)}-{step.job}"
        return await self.store.jobs.deliver_again(claim, name, within=timedelta(seconds=20))

    async def _release(self, step: Step) -> object:
        claim = self._handle(step.pod)
        if claim is None:
            return None
        hold = self.store.clock.now() + timedelta(seconds=7) if step.job == 0 else None
        live = await self.store.views.claim_of(claim.pod)
        since = live.missing_since if live and step.job == 1 else None
        release = because(undelivered=step.flag, hold_until=hold, missing_since=since)
        return await self.store.jobs.release(claim, release)

    async def _runner(self, pod: int) -> str:
        """Return the name of a runner that there is or was, if any."""
        sessions = await self.store.views.sessions(open_only=False)
        return sessions[pod % len(sessions)].runner_name if sessions else "nobody"

    async def _executes(self, step: Step) -> object:
        tenant = TENANTS[step.job % 2] if step.flag else TENANTS[step.pod % 2]
        return await self.store.executes(step.job, await self._runner(step.pod), tenant)

    async def _end(self, step: Step) -> object:
        now = self.store.clock.now()
        return await self.store.end(
            step.job,
            await self._runner(step.pod) if step.flag else "",
            tenant=TENANTS[step.job % 2],
            conclusion=("success", "cancelled")[step.pod % 2],
            started_at=now - timedelta(seconds=step.job) if step.pod else None,
            ends_claim=step.pod == 3,
        )

    async def _stop(self, step: Step) -> object:
        late = timedelta(seconds=step.job - 3)
        answer = await self.store.stop(self.pod(step.pod), ended_at=self.store.clock.now() - late)
        if step.flag:
            self.lives[step.pod] = self.lives.get(step.pod, 0) + 1
        return answer

    async def _sight(self, step: Step) -> object:
        handles = self.claims[-3:]
        present, absent = (handles, []) if step.flag else ([], handles)
        return await self.store.jobs.sight_pods(present=present, absent=absent, by="test")

    async def _limit(self, step: Step) -> object:
        os = Os.DARWIN if step.pod == 3 else Os.LINUX
        limit = Size(step.job, step.job * 1500)
        if step.flag:
            return await self.store.jobs.ensure_limits(TENANTS[step.pod % 2], os, limit, by="test")
        await self.store.jobs.set_limits(TENANTS[step.pod % 2], os, limit, by="test")
        return None

    async def _pass(self, step: Step) -> object:
        self.store.clock.forward(step.job * 60.5 if step.flag else step.pod * 0.25)
        return None

    async def _drop(self, step: Step) -> object:
        """Lose a stop report: the Pod is replaced and nobody is told."""
        self.lives[step.pod] = self.lives.get(step.pod, 0) + 1
        return None

    async def _deliver(self, step: Step) -> object:
        subject = f"forge/{step.job}" if step.flag else ""
        delivery = Delivery(guid=f"{step.job}-{step.pod}", event="e", body=b"{}", subject=subject)
        return await self.store.deliveries.record(delivery)

    async def _work(self, step: Step) -> object:
        lease = timedelta(seconds=30)
        taken = await self.store.deliveries.take(limit=step.pod + 1, lease=lease)
        later = self.store.clock.now() + timedelta(seconds=step.job)
        done = [
            await self.store.deliveries.processed(d.guid, "ok")
            if step.flag
            else await self.store.deliveries.put_back(d.guid, retry_at=later)
            for d in taken
        ]
        return taken, done


async def all_of(store: Store) -> dict[str, object]:
    """Return everything that a store can be asked."""
    views = store.views
    return {
        "jobs": await views.jobs(states=frozenset(JobState)),
        "claims": await views.claims(),
        "sessions": await views.sessions(open_only=False),
        "standings": await views.standings(),
        "over": await views.completions([f"forge/{n}" for n in range(JOBS)]),
        "signals": [await views.signals(pool) for pool in POOLS],
        "waiting": [await views.waiting(f"forge/{n}") for n in range(JOBS)],
        "backlog": await store.deliveries.backlog(),
    }


async def play_both(database: Database, played: list[Step]) -> None:
    memory, real = Player(memory_store()), Player(postgres_store(database))
    for player in (memory, real):
        for tenant in TENANTS:
            await player.store.jobs.set_limits(tenant, Os.LINUX, Size(4, 9000), by="test")
        await player.store.jobs.set_limits("acme", Os.DARWIN, Size(3, 9000), by="test")
        for number in range(4):
            await player.play(Step("enqueue", number, 0, flag=False))
    for number, step in enumerate(played):
        expected, answer = await memory.play(step), await real.play(step)
        assert answer == expected, f"step {number}, {step}"
        await check_books(real.store.views)
    expected_all, answered_all = await all_of(memory.store), await all_of(real.store)
    for what, expected in expected_all.items():
        assert answered_all[what] == expected, what
    told = await memory.store.views.audit(limit=1000), await real.store.views.audit(limit=1000)
    # Numbers are the order of writing; PostgreSQL may leave some out.
    without_numbers = [
        [(e.at, e.who, e.what, e.why, e.job_id, e.pod, e.tenant, e.pool) for e in t] for t in told
    ]
    assert without_numbers[0] == without_numbers[1]


TABLES = "jobs, claims, sessions, completions, limits, decisions, deliveries"


@pytest.fixture(scope="module")
def shared_url(postgres_server: Server) -> str:
    """Make one database for all examples: a fresh one for each would take most of the time."""
    with asyncio.Runner() as runner:
        name = runner.run(postgres_server.new_database("migrated"))
    return postgres_server.postgres.dsn_of(name)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(played=steps)
def test_both_stores_give_the_same_answers_step_by_step(
    shared_url: str, played: list[Step]
) -> None:
    async def play() -> None:
        options = DatabaseSettings(url=shared_url, connections_min=1, connections_max=1)
        async with open_database(options) as database:
            async with database.connection() as connection:
                await connection.execute(f"TRUNCATE {TABLES} RESTART IDENTITY")
            await play_both(database, played)

    asyncio.run(play())
