"""Hand-overs that come at once: one statement, each with the end that it would have had alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from remuda.adapters.postgres.together import Together
from remuda.model.job import JobState, Kind
from remuda.ports.jobs import Attribution, Fence, Released, Running, Stale
from remuda.ports.registrations import Registration
from tests.support.eventually import eventually
from tests.support.jobs import Store, a_job, because, check_books, older, postgres_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.adapters.postgres.pool import Database, Pooled
    from remuda.model.job import Claim

HOUR = timedelta(hours=1)


@pytest.fixture
def real(database: Database) -> Store:
    return postgres_store(database)


def registered(pod: str, number: int | None = None) -> Registration:
    return Registration(
        runner_name=f"r-{pod}",
        kind=Kind.GITHUB,
        tenant="acme",
        repository="acme/app",
        job_id="forge/1",
        pod=pod,
        scope="" if number is None else "orgs/acme",
        number=number,
    )


async def noted(store: Store) -> dict[str, int | None]:
    """Return the numbers of what no claim stands behind."""
    before = store.clock.now() + HOUR
    found = await store.registrations.unused(noted_before=before, limit=100)
    return {one.runner_name: one.number for one in found}


@pytest.mark.parametrize("again", [False, True], ids=["the first", "a second"])
async def test_a_delivery_writes_down_what_the_forge_calls_the_runner(
    store: Store, *, again: bool
) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    await store.registrations.note(registered("a"))
    if again:
        assert isinstance(await store.jobs.mark_running(claim, "r-first"), Running)
        given = registered("a", 77)
        await store.jobs.deliver_again(claim, "r-a", within=HOUR, registered=given)
    else:
        await store.jobs.mark_running(claim, "r-a", registered=registered("a", 77))
    await store.jobs.release(claim, because(undelivered=True))
    assert await noted(store) == {"r-a": 77}


async def test_the_number_is_kept_of_a_runner_whose_claim_is_gone_and_of_no_stranger(
    store: Store,
) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    await store.registrations.note(registered("a"))
    await store.registrations.note(registered("b"))
    await store.jobs.release(claim, because(undelivered=True))
    given = registered("a", 77)
    gone = await store.jobs.mark_running(claim, "r-a", registered=given)
    assert gone == Stale(Fence.GONE)
    assert await store.jobs.mark_running(claim, "r-x", registered=registered("x", 5)) == gone
    assert await noted(store) == {"r-a": 77, "r-b": None}


@pytest.mark.parametrize("again", [False, True], ids=["the first", "a second"])
async def test_a_handle_of_one_tenant_delivers_no_job_of_another_with_the_same_token(
    store: Store, *, again: bool
) -> None:
    await store.limit()
    await store.limit("other")
    await store.queue(a_job(1))
    first = await store.take("a")
    await store.jobs.release(first.claim, because(undelivered=True))
    await store.end(1)
    await store.queue(a_job(2, tenant="other"))
    second = await store.take("a")
    assert second.claim.claimed_at == first.claim.claimed_at
    if again:
        assert isinstance(await store.jobs.mark_running(second.claim, "r-a"), Running)
        answer = await store.jobs.deliver_again(first.claim, "r-b", within=HOUR)
    else:
        answer = await store.jobs.mark_running(first.claim, "r-b")
    assert answer == Stale(Fence.GONE)


async def test_each_of_a_group_has_its_own_end(store: Store) -> None:
    """In memory they come one by one; in PostgreSQL in one statement."""
    await store.limit(vcpus=100)
    await store.queue(*(a_job(n) for n in range(8)))
    claims = {pod: (await store.take(pod)).claim for pod in "abcdefgh"}
    await store.jobs.release(claims["b"], because(undelivered=True))
    await store.end(2)
    await store.jobs.mark_running(claims["d"], "r-d")
    await store.jobs.mark_running(claims["e"], "r-other")
    await store.jobs.mark_running(claims["f"], "r-f")
    await store.executes(5, "r-f")
    deliver, again = store.jobs.mark_running, store.jobs.deliver_again
    answers = await asyncio.gather(
        deliver(claims["a"], "r-a"),
        deliver(claims["b"], "r-b"),
        deliver(claims["c"], "r-c"),
        deliver(claims["d"], "r-d"),
        deliver(claims["e"], "r-e"),
        again(claims["f"], "r-f2", within=HOUR),
        deliver(older(claims["g"]), "r-g"),
        again(claims["e"], "r-e2", within=HOUR),
        deliver(claims["h"], "r-h"),
        deliver(claims["h"], "r-h2"),
        again(claims["a"], "r-a2", within=HOUR),
    )
    assert [a.job.spec.id if isinstance(a, Running) else a.why for a in answers] == [
        *("forge/0", Fence.GONE, Fence.OVER, "forge/3", Fence.DELIVERED, Fence.EXECUTING),
        *(Fence.GONE, "forge/4", "forge/7", Fence.DELIVERED, "forge/0"),
    ]
    replaced = [a.replaced_runner for a in answers if isinstance(a, Running)]
    assert replaced == ["", "", "r-other", "", "r-a"]
    assert (await store.job(0)).runner_name == "r-a2"
    assert await store.state(6) is JobState.CLAIMED


async def test_what_is_handed_over_at_once_is_one_statement(database_url: str) -> None:
    settings = DatabaseSettings(url=database_url, connections_min=1, connections_max=1)
    async with open_database(settings) as database:
        real = postgres_store(database)
        await real.limit(vcpus=100)
        await real.queue(*(a_job(n) for n in range(30)))
        claims = [(await real.take(f"pod-{n}")).claim for n in range(30)]
        asked: list[str] = []
        async with database.connection() as c:
            c.add_query_logger(lambda said: asked.append(said.query))
        names = [f"r-{claim.pod}" for claim in claims]
        await asyncio.gather(*(real.registrations.note(registered(c.pod)) for c in claims))
        answers = await asyncio.gather(*map(real.jobs.mark_running, claims, names))
    assert [a.job.spec.id for a in answers if isinstance(a, Running)] == [
        claim.job_id for claim in claims
    ]
    assert len([query for query in asked if "deliver_jobs" in query]) == 1
    assert len([query for query in asked if "INTO registrations" in query]) == 1


async def test_a_name_that_cannot_be_kept_fails_alone(real: Store) -> None:
    await real.limit(vcpus=100)
    await real.queue(*(a_job(n) for n in range(3)))
    claims = [(await real.take(pod)).claim for pod in "abc"]
    answers = await asyncio.gather(
        *(
            real.jobs.mark_running(claim, name)
            for claim, name in zip(claims, ("r-a", "nul\0", "r-c"), strict=True)
        ),
        return_exceptions=True,
    )
    assert [isinstance(answer, Running) for answer in answers] == [True, False, True]
    names = ("r-a", "r" * 65, "r-c")
    notes = await asyncio.gather(
        *(
            real.registrations.note(replace(registered("x"), runner_name=name, tenant="other"))
            for name in names
        ),
        return_exceptions=True,
    )
    assert [note is None for note in notes] == [True, False, True]
    assert set(await noted(real)) == {"r-a", "r-c"}


async def _blocked(connection: Pooled, count: int = 1) -> bool:
    waiting = await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return bool(waiting >= count)


async def test_who_leaves_while_its_job_is_marked_cannot_overtake_that(
    database: Database, real: Store
) -> None:
    """Its release comes after the delivery, whoever of the group it is: so it knows what it gives back."""
    await real.limit(vcpus=100)
    await real.queue(*(a_job(n) for n in range(3)))
    claims = [(await real.take(pod)).claim for pod in "abc"]

    async def hand_over(claim: Claim) -> Released | Stale:
        name = f"r-{claim.pod}"
        try:
            await real.jobs.mark_running(claim, name)
        except asyncio.CancelledError:
            mine = because(undelivered=True, runner_name=name)
            return await real.jobs.release(claim, mine)
        return Stale(Fence.SEEN)

    async with asyncio.TaskGroup() as group, database.transaction() as blocker:
        await blocker.execute("LOCK TABLE claims IN ACCESS EXCLUSIVE MODE")
        tasks = [group.create_task(hand_over(claim), name=claim.pod) for claim in claims]
        await eventually(lambda: _blocked(blocker))
        for gone in (0, 2):
            tasks[gone].cancel()
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in tasks)
    assert [type(task.result()) for task in tasks] == [Released, Stale, Released]
    states = [await real.state(n) for n in range(3)]
    assert states == [JobState.QUEUED, JobState.RUNNING, JobState.QUEUED]
    await check_books(real.views)


async def test_a_claim_that_gets_another_job_meanwhile_is_delivered_with_that(
    database: Database, real: Store
) -> None:
    await real.limit(vcpus=100)
    await real.queue(*(a_job(n) for n in range(3)))
    claims = [(await real.take(pod)).claim for pod in "ab"]
    await real.jobs.mark_running(claims[0], "r-a")
    async with asyncio.TaskGroup() as group, database.transaction() as blocker:
        # The move has both jobs and waits for a claim; the hand-over has seen its old job and waits for that.
        await blocker.execute("SELECT FROM claims WHERE pod = 'a' FOR UPDATE")
        moved = group.create_task(real.executes(1, "r-a"))
        await eventually(lambda: _blocked(blocker))
        handed = group.create_task(real.jobs.mark_running(claims[1], "r-b"))
        await eventually(lambda: _blocked(blocker, 2))
    assert moved.result() is Attribution.MOVED
    answer = handed.result()
    assert isinstance(answer, Running)
    assert answer.job.spec.id == "forge/0"
    await check_books(real.views)


async def test_a_fault_of_ours_reaches_everybody_who_waits() -> None:
    async def broken(some: Sequence[int]) -> Sequence[int]:
        await asyncio.sleep(0)
        assert not some, "a fault"
        return some

    together = Together(broken)
    answers = await asyncio.gather(*(together.ask(n) for n in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [AssertionError] * 3
    assert isinstance(
        (await asyncio.gather(together.ask(1), return_exceptions=True))[0], AssertionError
    )


# --- With the job that was claimed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [True, False], ids=["given", "not given"])
async def test_who_has_the_job_is_told_what_the_books_say(store: Store, *, given: bool) -> None:
    await store.limit()
    await store.queue(a_job(1, run_id=7, fork=True))
    claimed = await store.take("a")
    store.clock.forward(3)
    told = await store.jobs.mark_running(claimed.claim, "r-a", job=claimed.job if given else None)
    assert isinstance(told, Running)
    assert told.job == await store.views.job("forge/1")
    assert told.session == await store.views.session_of("a")
    # The same call again: its first answer may have been lost.
    store.clock.forward(3)
    assert await store.jobs.mark_running(claimed.claim, "r-a", job=claimed.job) == told


async def test_who_has_another_job_by_now_is_told_of_that(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    first, second = await store.take("a"), await store.take("b")
    await store.jobs.mark_running(first.claim, "r-a", job=first.job)
    assert await store.executes(2, "r-a") is Attribution.MOVED
    told = await store.jobs.mark_running(second.claim, "r-b", job=second.job)
    assert isinstance(told, Running)
    assert told.job.spec.id == "forge/1"
    assert told.job == await store.views.job("forge/1")
    assert told.session == await store.views.session_of("b")


async def test_of_a_group_each_is_told_of_its_own_job(real: Store) -> None:
    await real.limit(vcpus=100)
    await real.queue(*(a_job(n) for n in range(8)))
    taken = [await real.take(f"p{n}") for n in range(8)]
    mark = real.jobs.mark_running
    told = await asyncio.gather(
        *(
            mark(t.claim, f"r-{t.claim.pod}", job=t.job if n % 3 else None)
            for n, t in enumerate(taken)
        )
    )
    for one, claimed in zip(told, taken, strict=True):
        assert isinstance(one, Running)
        assert one.job == await real.views.job(claimed.job.spec.id)
        assert one.session == await real.views.session_of(claimed.claim.pod)


async def test_a_replica_of_the_version_before_hands_over_beside_this_one(
    database: Database, real: Store
) -> None:
    await real.limit()
    await real.queue(a_job(1))
    claim = (await real.take("a")).claim
    async with database.connection() as c:
        row = await c.fetchrow(
            "SELECT * FROM deliver_jobs(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[$4::timestamptz], '{r-a}', '{NULL}',"
            " '{NULL}', '{NULL}', now())",
            *(claim.job_id, claim.pod, claim.pod_uid, claim.claimed_at),
        )
    assert row is not None
    assert (row["outcome"], row["job"]["id"]) == ("running", "forge/1")
