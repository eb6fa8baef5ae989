"""The forge gives a job to any runner that fits. Whoever runs it, both jobs are right at the first message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.model.job import JobState
from remuda.ports.jobs import Attribution, Enqueued, Fence, Released, Running, Stale
from tests.support.jobs import Store, a_job, because

if TYPE_CHECKING:
    from remuda.model.job import Claim


async def _claim_of(store: Store, pod: str) -> Claim:
    live = await store.views.claim_of(pod)
    assert live is not None
    return live.claim


async def test_the_job_that_was_claimed_for_runs(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    store.clock.forward(5)
    assert await store.executes(1, "r-a") is Attribution.MATCHED
    session = await store.views.session_of("a")
    live = await store.views.claim_of("a")
    assert session is not None
    assert live is not None
    assert (session.executed_job_id, live.executed_at) == ("forge/1", store.clock.now())
    assert (await store.views.audit(job_id="forge/1"))[-1].what == "executing"


async def test_a_repeated_message_changes_nothing(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    await store.executes(1, "r-a")
    before = (await store.views.claims(), await store.views.audit())
    store.clock.forward(5)
    assert await store.executes(1, "r-a") is Attribution.MATCHED
    assert (await store.views.claims(), await store.views.audit()) == before


async def test_a_waiting_job_that_a_siblings_runner_runs_takes_its_place(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    assert await store.executes(2, "r-a") is Attribution.MOVED
    first, second = await store.job(1), await store.job(2)
    assert (first.state, first.claim, first.runner_name) == (JobState.QUEUED, None, "")
    assert (second.state, second.runner_name) == (JobState.RUNNING, "r-a")
    assert second.claim == await _claim_of(store, "a")
    session = await store.views.session_of("a")
    assert session is not None
    assert (session.job_id, session.executed_job_id) == ("forge/1", "forge/2")
    # The first has its old place: it is the next to go, and there is one runner for each job.
    assert (await store.take("b")).job.spec.id == "forge/1"


async def test_two_running_jobs_that_were_swapped_swap_their_pods(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    await store.run("b")
    assert await store.executes(2, "r-a") is Attribution.MOVED
    first, second = await store.job(1), await store.job(2)
    assert (first.state, first.runner_name, first.claim) == (
        JobState.RUNNING,
        "r-b",
        await _claim_of(store, "b"),
    )
    assert (second.state, second.runner_name, second.claim) == (
        JobState.RUNNING,
        "r-a",
        await _claim_of(store, "a"),
    )
    assert await store.executes(1, "r-b") is Attribution.MATCHED
    assert len((await store.end(2, "r-a")).freed) == 1
    assert await store.state(1) is JobState.RUNNING
    assert len((await store.end(1, "r-b")).freed) == 1
    assert await store.views.claims() == ()


async def test_a_claim_in_the_middle_of_its_mint_gets_the_other_job(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    minting = await store.take("b")
    assert minting.job.spec.id == "forge/2"
    assert await store.executes(2, "r-a") is Attribution.MOVED
    assert (await store.job(1)).state is JobState.CLAIMED
    running = await store.jobs.mark_running(minting.claim, "r-b")
    assert isinstance(running, Running)
    assert running.job.spec.id == "forge/1"
    assert running.session.job_id == "forge/1"


async def test_a_failed_mint_gives_back_the_job_that_it_now_holds(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    minting = await store.take("b")
    await store.executes(2, "r-a")
    answer = await store.jobs.release(minting.claim, because(undelivered=True))
    assert answer == Released("forge/1", requeued=True)
    assert await store.state(2) is JobState.RUNNING


async def test_evidence_about_a_job_does_not_release_the_one_that_took_its_place(
    store: Store,
) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    seen = (await store.run("a")).job.claim
    assert seen is not None
    await store.executes(2, "r-a")
    assert await store.jobs.release(seen, because("it waits there")) == Stale(Fence.MOVED)
    assert await store.state(2) is JobState.RUNNING


async def test_a_runner_runs_one_job_so_a_second_message_is_not_believed(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    await store.executes(2, "r-a")
    before = (await store.job(1), await store.job(2), await store.views.audit())
    assert await store.executes(1, "r-a") is Attribution.CONTRADICTED
    assert (await store.job(1), await store.job(2), await store.views.audit()) == before
    assert (await store.end(1, "r-a")).freed == ()
    assert await store.state(2) is JobState.RUNNING


async def test_an_end_before_the_beginning_puts_both_jobs_right(store: Store) -> None:
    await store.limit(vcpus=2)
    await store.queue(a_job(1), a_job(2))
    claim = (await store.run("a")).job.claim
    ended = await store.end(2, "r-a")
    assert ended.requeued == ("forge/1",)
    assert claim is not None
    assert ended.freed == (replace(claim, job_id="forge/2"),)
    assert await store.state(1) is JobState.QUEUED
    assert (await store.job(2)).runner_name == "r-a"
    assert await store.executes(2, "r-a") is Attribution.OVER
    assert (await store.take("b")).job.spec.id == "forge/1"


async def test_a_sibling_that_ends_does_not_free_a_runner_that_still_works(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    await store.run("b")
    ended = await store.end(1, "r-b")
    assert [c.pod for c in ended.freed] == ["b"]
    assert (await _claim_of(store, "a")).job_id == "forge/2"
    assert await store.state(2) is JobState.RUNNING


async def test_a_job_of_which_nobody_told_frees_the_one_that_the_runner_was_for(
    store: Store,
) -> None:
    await store.limit(vcpus=2)
    await store.queue(a_job(1))
    await store.run("a")
    assert await store.executes(7, "r-a") is Attribution.MOVED
    assert await store.state(1) is JobState.QUEUED
    assert (await _claim_of(store, "a")).job_id == "forge/7"
    ended = await store.end(7, "r-a")
    assert [c.job_id for c in ended.freed] == ["forge/7"]
    assert (await store.take("b")).job.spec.id == "forge/1"


async def test_a_job_told_of_late_is_known_to_run(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    await store.executes(7, "r-a")
    started = store.clock.now()
    store.clock.forward(5)
    answer = await store.jobs.enqueue(a_job(7), by="webhook")
    assert isinstance(answer, Enqueued)
    assert (answer.job.state, answer.job.runner_name) == (JobState.RUNNING, "r-a")
    assert answer.job.started_at == started
    assert answer.job.claim == await _claim_of(store, "a")


async def test_a_runner_of_another_tenant_with_the_same_name_is_left_alone(store: Store) -> None:
    await store.limit()
    await store.limit("other")
    await store.queue(a_job(1), a_job(2, tenant="other"))
    await store.run("a")
    before = await store.views.claims()
    assert await store.executes(2, "r-a", tenant="other") is Attribution.UNKNOWN_RUNNER
    ended = await store.end(2, "r-a", tenant="other")
    assert ended.freed == ()
    assert await store.views.claims() == before


async def test_a_tenant_cannot_take_over_a_job_of_another(store: Store) -> None:
    await store.limit()
    await store.limit("evil")
    await store.queue(a_job(1), a_job(2, tenant="evil", pool="evil"))
    await store.run("a", "evil")
    assert await store.executes(1, "r-a", tenant="evil") is Attribution.UNKNOWN_RUNNER
    assert await store.state(1) is JobState.QUEUED


async def test_a_runner_without_a_claim_is_unknown_but_its_session_learns_what_it_ran(
    store: Store,
) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    await store.stop("a")
    assert await store.executes(1, "r-a") is Attribution.UNKNOWN_RUNNER
    session = await store.views.session_of("a")
    assert session is not None
    assert session.executed_job_id == "forge/1"
    assert await store.executes(1, "nobody") is Attribution.UNKNOWN_RUNNER


async def test_a_job_in_doubt_that_runs_elsewhere_is_bound_there(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    await store.stop("a")
    await store.run("b")
    assert await store.executes(1, "r-b") is Attribution.MOVED
    assert (await store.job(1)).claim == await _claim_of(store, "b")
    assert await store.state(2) is JobState.QUEUED
    assert (await store.stop("a")).in_doubt == ()
