"""A runner that is busy with a job that nobody named: its own job goes back, and its room stays taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.model.job import JobState, unnamed_job
from remuda.ports.jobs import Attribution, Fence, NoJob, NothingToDo, Released, Stale, WarmRunner
from tests.support.jobs import a_job, check_books

if TYPE_CHECKING:
    from remuda.model.job import Claim
    from remuda.ports.jobs import Running
    from tests.support.jobs import Store


async def handed_over(store: Store) -> tuple[Running, Claim]:
    await store.limit(vcpus=2)  # one job at a time
    await store.queue(a_job(1))
    running = await store.run("p")
    assert running.job.claim is not None
    return running, running.job.claim


async def disown(store: Store, claim: Claim) -> Released | Stale:
    return await store.jobs.disown(claim, by="test", why="its runner is busy")


async def test_the_job_goes_back_to_its_place_and_the_room_stays_taken(store: Store) -> None:
    running, claim = await handed_over(store)

    assert await disown(store, claim) == Released("forge/1", requeued=True)

    job = await store.views.job("forge/1")
    assert job is not None
    assert (job.state, job.spec.queued_at) == (JobState.QUEUED, running.job.spec.queued_at)
    (live,) = await store.views.claims()
    assert (live.claim.job_id, live.runner_name) == (unnamed_job("uid-p"), "r-p")
    next_one = await store.jobs.claim(WarmRunner("q", "uid-q", "linux"))
    assert next_one == NothingToDo(NoJob.CAPPED), "the first VM works: its room is not free"
    await check_books(store.views)


async def test_the_claim_follows_the_runner_once_the_forge_names_its_job(store: Store) -> None:
    _, claim = await handed_over(store)
    await disown(store, claim)
    await store.queue(a_job(2))

    assert await store.executes(2, "r-p") is Attribution.MOVED

    (live,) = await store.views.claims()
    assert live.claim.job_id == "forge/2"
    one, two = await store.views.job("forge/1"), await store.views.job("forge/2")
    assert one is not None
    assert two is not None
    assert (one.state, two.state) == (JobState.QUEUED, JobState.RUNNING)
    await check_books(store.views)


async def test_it_may_turn_out_to_be_the_same_job_after_all(store: Store) -> None:
    _, claim = await handed_over(store)
    await disown(store, claim)

    assert await store.executes(1, "r-p") is Attribution.MOVED

    job = await store.views.job("forge/1")
    assert job is not None
    assert (job.state, job.runner_name) == (JobState.RUNNING, "r-p")
    await check_books(store.views)


async def test_the_end_of_what_it_ran_frees_the_room(store: Store) -> None:
    _, claim = await handed_over(store)
    await disown(store, claim)
    await store.end(2, "r-p")

    assert await store.views.claims() == ()
    await store.take("q")
    await check_books(store.views)


async def test_the_end_of_the_pod_frees_the_room(store: Store) -> None:
    _, claim = await handed_over(store)
    await disown(store, claim)
    await store.stop("p")

    assert await store.views.claims() == ()
    await store.take("q")
    await check_books(store.views)


async def test_a_job_that_another_pod_has_by_then_is_taken_over_with_that_pod(store: Store) -> None:
    await store.limit(vcpus=8)
    await store.queue(a_job(1))
    running = await store.run("p")
    assert running.job.claim is not None
    await disown(store, running.job.claim)
    again = await store.take("q")
    assert again.job.spec.id == "forge/1"

    assert await store.executes(1, "r-p") is Attribution.MOVED

    job = await store.views.job("forge/1")
    assert job is not None
    assert (job.state, job.runner_name) == (JobState.RUNNING, "r-p")
    late = await store.jobs.mark_running(again.claim, "r-q")
    assert isinstance(late, Stale), "the other Pod is handed nothing"
    await store.stop("p")
    await store.stop("q")
    await check_books(store.views)


async def test_an_old_handle_disowns_nothing(store: Store) -> None:
    _, claim = await handed_over(store)
    await disown(store, claim)

    assert await disown(store, claim) == Stale(Fence.MOVED)


async def test_what_is_not_handed_over_is_not_disowned(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claimed = await store.take("p")

    assert await disown(store, claimed.claim) == Stale(Fence.GONE)


async def test_a_runner_that_executes_its_job_keeps_it(store: Store) -> None:
    _, claim = await handed_over(store)
    await store.executes(1, "r-p")

    assert await disown(store, claim) == Stale(Fence.EXECUTING)
