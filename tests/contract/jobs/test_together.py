"""Claims that are asked for at once are served together, each as if it came alone; nobody's end is another's."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.jobs import PostgresJobs
from remuda.adapters.postgres.queries import query
from remuda.adapters.postgres.together import TOGETHER_MAX, Together
from remuda.dispatch.decide.fairness import AGEING
from remuda.model.job import Claim, Job, JobState, Size
from remuda.ports.database import DatabaseUnavailable
from remuda.ports.jobs import Claimed, NoJob, NothingToDo, Sighted, WarmRunner
from tests.support.eventually import eventually, within
from tests.support.jobs import START, Store, a_job, check_books, memory_store, postgres_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.adapters.postgres.pool import Database, Pooled
    from remuda.model.job import JobSpec


def warm(pod: str, pool: str = "linux") -> WarmRunner:
    return WarmRunner(pod, f"uid-{pod}", pool, f"r-{pod}")


@pytest.fixture
def real(database: Database) -> Store:
    return postgres_store(database)


async def at_once(store: Store, *pods: str) -> dict[str, Claimed | NothingToDo]:
    answers = await asyncio.gather(*(store.jobs.claim(warm(pod)) for pod in pods))
    return dict(zip(pods, answers, strict=True))


async def one_by_one(store: Store, *pods: str) -> dict[str, Claimed | NothingToDo]:
    return {pod: await store.jobs.claim(warm(pod)) for pod in pods}


def mixed(number: int) -> JobSpec:
    """Build jobs of some tenants and repositories, of several ages and sizes."""
    tenant = ("acme", "bolt", "core")[number % 3]
    return a_job(
        number,
        tenant=tenant,
        repository=f"{tenant}/{number // 3 % 3}",
        size=Size(1 + number % 2, 1024),
        queued_at=START + timedelta(seconds=37 * (number * 7 % 40)),
    )


@pytest.mark.parametrize("pods", [2, 5, 13, 40])
@pytest.mark.parametrize("waited_s", [0, 4000])
@pytest.mark.parametrize("limit", [5, 12, 100])
async def test_a_group_gets_what_it_would_have_got_one_by_one(
    real: Store, pods: int, waited_s: int, limit: int
) -> None:
    memory = memory_store()
    names = [f"pod-{n}" for n in range(pods)]
    for store in (memory, real):
        for factor, tenant in enumerate(("acme", "bolt", "core"), 1):
            await store.limit(tenant, vcpus=factor * limit)
        await store.queue(*(mixed(n) for n in range(40)))
        store.clock.forward(waited_s)
    expected = await one_by_one(memory, *names)
    answered = await at_once(real, *names)
    # Which Pod of a group gets which of its jobs does not matter; which jobs they get does.
    assert jobs_of(answered) == jobs_of(expected)
    assert reasons(answered) == reasons(expected)
    assert await real.views.standings() == await memory.views.standings()
    assert [c.claim.claimed_at for c in await real.views.claims()] == [
        c.claim.claimed_at for c in await memory.views.claims()
    ]


def jobs_of(answers: dict[str, Claimed | NothingToDo]) -> set[str]:
    return {a.job.spec.id for a in answers.values() if isinstance(a, Claimed)}


def reasons(answers: dict[str, Claimed | NothingToDo]) -> Counter[NoJob]:
    return Counter(a.reason for a in answers.values() if isinstance(a, NothingToDo))


@pytest.mark.parametrize("repositories", [1, 3], ids=["of one repository", "of three"])
@pytest.mark.parametrize("pods", [1, 4], ids=["one Pod", "four Pods"])
async def test_a_claim_reads_as_little_of_a_long_queue_as_of_a_short_one(
    database: Database, real: Store, repositories: int, pods: int
) -> None:
    await real.limit(vcpus=100_000)
    async with database.transaction() as c:
        await c.execute(LONG_QUEUE, 4_000, repositories)
        await c.execute(
            "ANALYZE jobs"
        )  # what the planner knows of it is the worst that it can know
    names = [f"pod-{n}" for n in range(pods)]
    async with database.transaction() as c:
        before = await c.fetchval(READ, "jobs")
        rows = await c.fetch(query("claim_jobs"), *_claim_values(real, names))
        read = await c.fetchval(READ, "jobs") - before
    assert [row["outcome"] for row in rows] == ["claimed"] * pods
    assert read < 20 * (pods + repositories)


LONG_QUEUE = """
INSERT INTO jobs (id, kind, tenant, repository, pool, os, vcpus, memory_mib, label, labels, name, workflow, branch,
    commit, url, fork, queued_at, state, attempts)
SELECT 'long/' || n, 'github', 'acme', 'acme/' || n % $2, 'linux', 'linux', 1, 1024, 'fast', '{fast}', 'build', 'ci',
    'main', 'abc', '', false, now() - interval '1 hour' + n * interval '1 ms', 'queued', 0
FROM generate_series(1, $1) AS n
"""
READ = """
SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = $1
"""


async def test_a_claim_for_the_only_repository_that_waits_does_not_read_what_it_has(
    database: Database, real: Store
) -> None:
    await real.limit(vcpus=100_000)
    async with database.transaction() as c:
        await c.execute(LONG_QUEUE, 600, 1)
        many = [f"pod-{n}" for n in range(500)]
        await c.fetch(query("claim_jobs"), *_claim_values(real, many))
        before = await c.fetchval(READ, "claims")
        (row,) = await c.fetch(query("claim_jobs"), *_claim_values(real, ["late"]))
        read = await c.fetchval(READ, "claims") - before
    assert row["outcome"] == "claimed"
    assert read < 20


def _claim_values(store: Store, pods: Sequence[str]) -> tuple[object, ...]:
    runners = [warm(pod) for pod in pods]
    return (
        *("linux", list(pods), [r.pod_uid for r in runners], [r.runner_name for r in runners]),
        *(store.clock.now(), AGEING, 0, [], [], [], []),
    )


async def test_each_of_a_group_hears_its_own_reason(real: Store) -> None:
    await real.limit(vcpus=100)
    await real.queue(*(a_job(n) for n in range(3)))
    await real.run("spent")
    await real.end(0, "r-spent")
    held = await real.take("held")
    pods = ("held", "spent", "a", "a", "b")
    answers = await asyncio.gather(*(real.jobs.claim(warm(pod)) for pod in pods))
    assert [isinstance(answer, Claimed) for answer in answers] == [False, False, True, False, False]
    assert answers[0] == NothingToDo(NoJob.POD_IN_USE, await real.views.claim_of("held"))
    assert answers[1] == NothingToDo(NoJob.POD_SPENT)
    assert answers[3] == NothingToDo(NoJob.POD_IN_USE, await real.views.claim_of("a"))
    assert answers[4] == NothingToDo(NoJob.EMPTY)
    assert held.claim.pod == "held"
    await check_books(real.views)


async def test_a_group_takes_no_job_that_is_being_changed_and_all_others(
    database: Database, real: Store
) -> None:
    await real.limit(vcpus=100)
    await real.queue(*(a_job(n) for n in range(6)))
    async with database.transaction() as blocker:
        await blocker.execute("SELECT FROM jobs WHERE id IN ('forge/0', 'forge/3') FOR UPDATE")
        answers = await at_once(real, *(f"pod-{n}" for n in range(6)))
    assert jobs_of(answers) == {"forge/1", "forge/2", "forge/4", "forge/5"}
    assert reasons(answers) == {NoJob.LOST_RACE: 2}
    await check_books(real.views)


async def test_who_leaves_while_it_is_served_keeps_no_job(database: Database, real: Store) -> None:
    await real.limit(vcpus=100)
    await real.queue(*(a_job(n) for n in range(6)))
    async with asyncio.TaskGroup() as group, database.transaction() as blocker:
        await blocker.execute("LOCK TABLE claims IN ACCESS EXCLUSIVE MODE")
        asking = [
            group.create_task(real.jobs.claim(warm(f"pod-{n}")), name=f"pod-{n}") for n in range(6)
        ]
        await eventually(lambda: _blocked(blocker))
        for gone in (0, 2, 5):
            asking[gone].cancel()
        await asyncio.sleep(0)
    kept = jobs_of({f"{n}": asking[n].result() for n in (1, 3, 4)})
    assert len(kept) == 3
    live = await real.views.claims()
    assert {claim.claim.job_id for claim in live} == kept
    assert [task.cancelled() for task in asking] == [True, False, True, False, False, True]
    await check_books(real.views)
    async with database.connection() as c:
        noted = await c.fetch("SELECT runner_name FROM registrations ORDER BY 1")
    assert [row["runner_name"] for row in noted] == ["r-pod-1", "r-pod-3", "r-pod-4"]
    again = await at_once(real, "pod-0", "pod-2", "pod-5")
    assert len(jobs_of(again)) == 3


async def test_a_look_at_the_pods_holds_no_claim_while_it_waits_for_one(
    database: Database, real: Store
) -> None:
    """Hand-overs lock claims by their Pods: whoever held a later one and waited for an earlier one would deadlock."""
    await real.limit(vcpus=100)
    await real.queue(*(a_job(n) for n in range(2)))
    a, b = (await real.take("a")).claim, (await real.take("b")).claim
    await real.jobs.sight_pods(present=[], absent=[b], by="sweep")
    async with asyncio.TaskGroup() as group, database.transaction() as blocker:
        await blocker.execute("SELECT FROM claims WHERE pod = 'a' FOR UPDATE")
        look = real.jobs.sight_pods(present=[b], absent=[a], by="sweep")
        looking = group.create_task(look, name="looks at the Pods")
        await eventually(lambda: _blocked(blocker))
        await blocker.execute("SELECT FROM claims WHERE pod = 'b' FOR UPDATE NOWAIT")
    assert looking.result() == Sighted(missing=1, back=1)


async def _blocked(connection: Pooled) -> bool:
    return bool(await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))


class Desk:
    """A database that serves when the test says so."""

    def __init__(self, *, most: int = TOGETHER_MAX) -> None:
        self.asked: list[list[str]] = []
        self.given_back: list[str] = []
        self.may_answer = asyncio.Event()
        self._lines = Together(self.serve, self.give_back, most=most)

    async def ask(self, runner: WarmRunner) -> Claimed | NothingToDo:
        return await self._lines.ask(runner, line=runner.pool)

    async def serve(self, runners: Sequence[WarmRunner]) -> list[Claimed | NothingToDo]:
        pods = [runner.pod for runner in runners]
        self.asked.append(pods)
        await self.may_answer.wait()
        if "down" in pods:
            raise DatabaseUnavailable("It is not there", why="the test says so", fix="Wait")
        if "bad" in pods:
            raise ValueError(pods)
        return [_claimed(pod) for pod in pods]

    async def give_back(self, answer: Claimed | NothingToDo) -> None:
        assert isinstance(answer, Claimed)
        self.given_back.append(answer.claim.pod)


async def _some_turns() -> None:
    """Let all go on until they wait for the database: turns of the loop, not time, which may be short."""
    for _ in range(20):
        await asyncio.sleep(0)


def _claimed(pod: str) -> Claimed:
    job = a_job(1)
    claim = Claim(job.id, pod, f"uid-{pod}", START)
    return Claimed(Job(spec=job, state=JobState.CLAIMED, claim=claim), claim)


async def test_one_statement_serves_all_who_came_during_the_one_before() -> None:
    desk = Desk()
    async with asyncio.TaskGroup() as group:
        for pod in "abcde":
            group.create_task(desk.ask(warm(pod)), name=pod)
            await _some_turns()
        other = group.create_task(desk.ask(warm("x", "mac")), name="x")
        await _some_turns()
        assert desk.asked == [["a"], ["x"]]
        desk.may_answer.set()
        await within(asyncio.wait({other}))
    assert desk.asked == [["a"], ["x"], ["b", "c", "d", "e"]]


async def test_the_next_statement_leaves_before_those_who_were_served_go_on() -> None:
    desk = Desk()
    asked_when_told: list[int] = []

    async def ask(pod: str) -> None:
        await desk.ask(warm(pod))
        asked_when_told.append(len(desk.asked))

    async with asyncio.TaskGroup() as group:
        for pod in "abc":
            group.create_task(ask(pod), name=pod)
        await _some_turns()
        for pod in "xyz":
            group.create_task(ask(pod), name=pod)
        await _some_turns()
        desk.may_answer.set()
    assert desk.asked == [["a", "b", "c"], ["x", "y", "z"]]
    assert asked_when_told == [2] * 6


async def test_those_whom_one_statement_served_ask_again_in_one() -> None:
    first, second = Desk(), Desk()
    first.may_answer.set()
    second.may_answer.set()

    async def ask_both(pod: str) -> None:
        await first.ask(warm(pod))
        await second.ask(warm(pod))

    await within(asyncio.gather(*(ask_both(pod) for pod in "abcd")))
    assert [sorted(pods) for pods in second.asked] == [["a", "b", "c", "d"]]


async def test_one_statement_serves_no_more_than_was_said() -> None:
    desk = Desk(most=3)
    desk.may_answer.set()
    await within(asyncio.gather(*(desk.ask(warm(pod)) for pod in "abcdefg")))
    assert desk.asked == [["a", "b", "c"], ["d", "e", "f"], ["g"]]


@pytest.mark.parametrize("first", [True, False], ids=["the first", "another"])
async def test_the_end_of_one_is_not_the_end_of_others(*, first: bool) -> None:
    desk = Desk()
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(desk.ask(warm(pod)), name=pod) for pod in "abc"]
        await _some_turns()
        assert desk.asked == [["a", "b", "c"]]
        gone = asking[0 if first else 2]
        gone.cancel()
        await _some_turns()
        gone.cancel()
        await _some_turns()
        desk.may_answer.set()
    assert [task.cancelled() for task in asking] == [task is gone for task in asking]
    assert desk.given_back == [gone.get_name()]
    assert isinstance(await within(desk.ask(warm("d"))), Claimed)


async def test_who_leaves_the_line_has_asked_for_nothing() -> None:
    desk = Desk()
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.ask(warm("a")), name="a")
        await _some_turns()
        waiting = [group.create_task(desk.ask(warm(pod)), name=pod) for pod in "bcd"]
        await _some_turns()
        waiting[0].cancel()
        desk.may_answer.set()
    assert desk.asked == [["a"], ["c", "d"]]
    assert desk.given_back == []


async def test_an_error_of_one_is_its_own_and_a_lost_database_is_everybodys() -> None:
    desk = Desk()
    desk.may_answer.set()
    answers = await asyncio.gather(
        *(desk.ask(warm(pod)) for pod in ("a", "bad", "b")), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [Claimed, ValueError, Claimed]
    answers = await asyncio.gather(
        *(desk.ask(warm(pod)) for pod in ("a", "down")), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 2
    assert isinstance(await within(desk.ask(warm("c"))), Claimed)


async def test_a_name_that_cannot_be_sent_fails_alone(real: Store) -> None:
    await real.limit(vcpus=100)
    await real.queue(*(a_job(n) for n in range(3)))
    answers = await asyncio.gather(
        *(real.jobs.claim(warm(pod)) for pod in ("a", "nul\0", "b")), return_exceptions=True
    )
    assert [isinstance(answer, Claimed) for answer in answers] == [True, False, True]
    await check_books(real.views)


async def test_a_group_waits_for_a_tenant_and_is_then_served_whole(
    database: Database, real: Store
) -> None:
    patient = replace(real, jobs=PostgresJobs(database, real.clock, wait=timedelta(seconds=5)))
    await real.limit(vcpus=100)
    await real.limit("other", vcpus=100)
    await real.queue(*(a_job(n, tenant=("acme", "other")[n % 2]) for n in range(8)))
    async with asyncio.TaskGroup() as group, database.transaction() as blocker:
        await blocker.execute("SELECT FROM limits FOR UPDATE")
        asking = group.create_task(at_once(patient, *"abcdefgh"), name="group")
        await eventually(lambda: _blocked(blocker))
    assert len(jobs_of(asking.result())) == 8
