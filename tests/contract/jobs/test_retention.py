"""What is forgotten: only what is over and old, in small pieces; what still matters stays."""

from __future__ import annotations

from datetime import timedelta

from remuda.model.job import JobState
from remuda.ports.jobs import AUDIT_KEPT, Over
from tests.support.jobs import Store, a_job, because

DAY_S = 86_400.0


async def finished(store: Store, number: int) -> None:
    """Let a job run and end, and its Pod stop."""
    await store.queue(a_job(number))
    await store.run(f"{number}")
    await store.end(number, f"r-{number}")
    await store.stop(f"{number}")


async def forget(store: Store, days: float, limit: int = 100) -> int:
    before = store.clock.now() - timedelta(days=days)
    return await store.jobs.forget(over_before=before, limit=limit)


async def test_what_ended_long_ago_is_forgotten_and_younger_things_stay(store: Store) -> None:
    await store.limit()
    await finished(store, 1)
    store.clock.forward(50 * DAY_S)
    await finished(store, 2)
    written = await store.views.audit()
    assert await forget(store, days=40) > 0
    assert await store.views.job("forge/1") is None
    assert await store.views.session_of("1") is None
    assert set(await store.views.completions(["forge/1", "forge/2"])) == {"forge/2"}
    assert await store.state(2) is JobState.COMPLETED
    assert await store.views.session_of("2") is not None
    left = await store.views.audit()
    assert left == tuple(entry for entry in written if entry.job_id == "forge/2")
    assert await forget(store, days=40) == 0


async def test_the_audit_is_kept_for_thirty_days_whatever_is_asked(store: Store) -> None:
    await store.limit()
    await finished(store, 1)
    store.clock.forward(AUDIT_KEPT.total_seconds() - 1)
    before = await store.views.audit()
    assert await forget(store, days=1) == 3
    assert await store.views.audit() == before
    store.clock.forward(2)
    assert await forget(store, days=1) == len(before)
    assert await store.views.audit() == ()


async def test_numbers_of_the_audit_are_not_used_again(store: Store) -> None:
    await store.queue(a_job(1))
    last = await store.views.audit_end()
    store.clock.forward(40 * DAY_S)
    await forget(store, days=35)
    await store.queue(a_job(2))
    assert [e.job_id for e in await store.views.audit(after=last)] == ["forge/2"]


async def test_a_job_that_is_not_over_is_never_forgotten(store: Store) -> None:
    await store.limit()
    await store.queue(*(a_job(n) for n in range(1, 4)))
    await store.run("a")
    await store.take("b")
    store.clock.forward(400 * DAY_S)
    await forget(store, days=1)
    states = [await store.state(n) for n in range(1, 4)]
    assert states == [JobState.RUNNING, JobState.CLAIMED, JobState.QUEUED]
    assert await store.views.session_of("a") is not None


async def test_a_job_that_a_pod_holds_is_kept_until_the_pod_lets_go(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    await store.end(1, conclusion="cancelled")
    store.clock.forward(100 * DAY_S)
    await forget(store, days=1)
    assert await store.state(1) is JobState.CANCELLED
    assert isinstance(await store.jobs.enqueue(a_job(1), by="late"), Over)
    await store.jobs.release(claim, because())
    await forget(store, days=1)
    assert await store.views.job("forge/1") is None


async def test_a_call_forgets_no_more_than_it_was_asked_to_the_oldest_first(store: Store) -> None:
    await store.limit(vcpus=100)
    for number in range(5):
        await finished(store, number)
        store.clock.forward(60)
    store.clock.forward(10 * DAY_S)
    assert await forget(store, days=1, limit=2) == 6
    left = await store.views.jobs(states=frozenset(JobState))
    assert [job.spec.id for job in left] == ["forge/2", "forge/3", "forge/4"]
    assert set(await store.views.completions([f"forge/{n}" for n in range(5)])) == {
        "forge/2",
        "forge/3",
        "forge/4",
    }


async def test_the_end_of_a_job_that_never_had_a_row_is_forgotten_too(store: Store) -> None:
    await store.end(7)
    store.clock.forward(3 * DAY_S)
    assert await forget(store, days=2) == 1
    assert await store.views.completions(["forge/7"]) == {}
