"""Registrations: what may have to be removed at a forge is written down first and forgotten once it is settled."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.model.job import Kind
from remuda.ports.jobs import Claimed, NothingToDo, WarmRunner
from remuda.ports.registrations import Registration
from tests.support.jobs import START, Store, a_job, because, postgres_store

if TYPE_CHECKING:
    from remuda.adapters.postgres.pool import Database

NAMED = WarmRunner("a", "uid-a", "linux", "r-a")


def of_pod(pod: str, name: str = "") -> Registration:
    return Registration(
        runner_name=name or f"r-{pod}",
        kind=Kind.GITHUB,
        tenant="acme",
        repository="acme/app",
        job_id="forge/1",
        pod=pod,
    )


async def unused(store: Store, seconds: float = 1, limit: int = 10) -> list[str]:
    before = store.clock.now() + timedelta(seconds=seconds)
    return [
        r.runner_name for r in await store.registrations.unused(noted_before=before, limit=limit)
    ]


async def test_what_the_forge_answered_is_added_to_what_was_noted_first(store: Store) -> None:
    await store.registrations.note(of_pod("a"))
    store.clock.forward(5)
    minted = replace(of_pod("a"), scope="orgs/acme", number=77)
    await store.registrations.note(minted)
    later = store.clock.now()
    assert await store.registrations.unused(noted_before=later, limit=10) == (
        replace(minted, noted_at=START),
    )


async def test_settled_ones_are_forgotten_and_counted(store: Store) -> None:
    for pod in "abc":
        await store.registrations.note(of_pod(pod))
    assert await store.registrations.settle(["r-a", "r-c", "r-nobody", "r-a"]) == 2
    assert await store.registrations.settle([]) == 0
    assert await unused(store) == ["r-b"]


async def test_the_oldest_are_first_and_young_ones_wait(store: Store) -> None:
    for pod in "cab":
        await store.registrations.note(of_pod(pod))
        store.clock.forward(1)
    assert await unused(store, limit=2) == ["r-c", "r-a"]
    assert await unused(store, seconds=-1.5) == ["r-c", "r-a"]


async def test_one_whose_claim_stands_is_in_use_before_and_after_its_delivery(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    await store.registrations.note(of_pod("a"))
    assert await unused(store) == []
    await store.jobs.mark_running(claim, "r-a")
    assert await unused(store) == []
    await store.jobs.release(claim, because(undelivered=True))
    assert await unused(store) == ["r-a"]


async def test_the_one_that_a_second_delivery_replaced_is_unused(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    for name in ("r-a", "r-new"):
        await store.registrations.note(of_pod("a", name))
    await store.jobs.mark_running(claim, "r-a")
    await store.jobs.deliver_again(claim, "r-new", within=timedelta(minutes=1))
    assert await unused(store) == ["r-a"]


async def test_one_whose_pod_still_runs_is_in_use_though_its_claim_is_gone(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    running = await store.run("a")
    await store.registrations.note(of_pod("a"))
    assert running.job.claim is not None
    await store.jobs.release(running.job.claim, because("the forge says that it waits"))
    assert await unused(store) == []
    await store.stop("a")
    assert await unused(store) == ["r-a"]


async def test_one_that_ran_a_job_and_was_never_settled_is_told_once_its_pod_stopped(
    store: Store,
) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    await store.registrations.note(of_pod("a"))
    await store.end(1, "r-a")
    assert await unused(store) == []
    await store.stop("a")
    assert await unused(store) == ["r-a"]


# --- Noted by the claim -----------------------------------------------------------------------------------------------


async def test_a_claim_notes_the_runner_that_it_is_for(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claimed = await store.jobs.claim(NAMED)
    assert isinstance(claimed, Claimed)
    store.clock.forward(5)
    assert await unused(store) == []
    await store.jobs.release(claimed.claim, because(undelivered=True))
    later = store.clock.now()
    assert await store.registrations.unused(noted_before=later, limit=10) == (
        replace(of_pod("a"), noted_at=START),
    )


async def test_what_the_forge_calls_it_is_added_to_what_the_claim_noted(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claimed = await store.jobs.claim(NAMED)
    assert isinstance(claimed, Claimed)
    minted = replace(of_pod("a"), scope="orgs/acme", number=77)
    await store.jobs.mark_running(claimed.claim, "r-a", registered=minted)
    store.clock.forward(5)
    await store.jobs.release(claimed.claim, because(undelivered=True))
    later = store.clock.now()
    assert await store.registrations.unused(noted_before=later, limit=10) == (
        replace(minted, noted_at=START),
    )


async def test_who_gets_no_job_or_one_without_a_forge_is_not_noted(store: Store) -> None:
    await store.limit()
    assert isinstance(await store.jobs.claim(NAMED), NothingToDo)
    await store.queue(a_job(1, kind=Kind.LOCAL))
    claimed = await store.jobs.claim(NAMED)
    assert isinstance(claimed, Claimed)
    await store.jobs.release(claimed.claim, because(undelivered=True))
    assert await unused(store) == []


@pytest.mark.parametrize(
    ("name", "kind", "durable"),
    [("r-a", Kind.GITHUB, True), ("", Kind.GITHUB, False), ("r-a", Kind.LOCAL, False)],
    ids=["noted", "no name", "local"],
)
async def test_a_claim_waits_for_the_disk_only_if_it_notes_a_runner(
    database: Database,
    name: str,
    kind: Kind,
    durable: bool,  # noqa: FBT001 - a case
) -> None:
    """A forge is asked next, and the name of what it registers must be safe by then."""
    store = postgres_store(database)
    await store.limit()
    await store.queue(a_job(1, kind=kind))
    async with database.transaction() as c:
        outcome = await c.fetchval(
            "SELECT outcome FROM claim_jobs('linux', '{a}', '{uid-a}', ARRAY[$1], now(), '1 h', 50, '{}', '{}', '{}')",
            name,
        )
        assert outcome == "claimed"
        waits = await c.fetchval("SHOW synchronous_commit")
    assert waits == ("on" if durable else "off")


async def test_a_replica_of_the_version_before_claims_beside_this_one(database: Database) -> None:
    """It names no runner with its claim, and notes it by itself."""
    store = postgres_store(database)
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    async with database.connection() as c:
        old = await c.fetchval(
            "SELECT outcome FROM claim_jobs('linux', '{b}', '{uid-b}', now(), '1 h', 50, '{}', '{}', '{}')"
        )
    assert old == "claimed"
    assert isinstance(await store.jobs.claim(NAMED), Claimed)
    async with database.connection() as c:
        assert await c.fetchval("SELECT array_agg(runner_name) FROM registrations") == ["r-a"]
