"""Claims: who gets which job, the handle that fences it, and every way in which it ends."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.model.job import JobState, Os, Size
from remuda.ports.jobs import (
    Claimed,
    Fence,
    NoJob,
    NothingToDo,
    Released,
    Running,
    Stale,
    WarmRunner,
    Without,
)
from tests.support.jobs import START, Store, a_job, because, older

if TYPE_CHECKING:
    from remuda.model.job import Claim


def warm(pod: str, pool: str = "linux") -> WarmRunner:
    return WarmRunner(pod, f"uid-{pod}", pool)


async def test_a_warm_pod_gets_the_oldest_job_with_all_that_the_forge_said(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(2), a_job(1))
    claimed = await store.take("a")
    assert claimed.job.spec == a_job(1)
    assert claimed.job.state is JobState.CLAIMED
    assert claimed.job.attempts == 1
    assert (claimed.claim.job_id, claimed.claim.pod, claimed.claim.pod_uid) == (
        "forge/1",
        "a",
        "uid-a",
    )
    assert await store.job(1) == claimed.job
    assert await store.audit(1) == ["enqueued", "claimed"]


async def test_a_token_keeps_its_microseconds(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    store.clock.forward(0.123457)
    claimed = await store.take("a")
    assert claimed.claim.claimed_at == START + timedelta(microseconds=123457)


async def test_tokens_grow_even_if_the_clock_stands_still_or_goes_back(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2), a_job(3))
    first, second = await store.take("a"), await store.take("b")
    store.clock.forward(-300)
    third = await store.take("c")
    assert first.claim.claimed_at < second.claim.claimed_at < third.claim.claimed_at


async def test_a_job_is_claimed_once(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.take("a")
    assert await store.jobs.claim(warm("b")) == NothingToDo(NoJob.EMPTY)


async def test_a_pod_holds_one_job_and_is_told_which(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    claimed = await store.take("a")
    answer = await store.jobs.claim(warm("a"))
    assert isinstance(answer, NothingToDo)
    assert answer.reason is NoJob.POD_IN_USE
    assert answer.held is not None
    assert answer.held.claim == claimed.claim
    assert answer.held.delivered_at is None


async def test_a_pod_holds_one_job_over_all_tenants(store: Store) -> None:
    await store.limit()
    await store.limit("other")
    await store.queue(a_job(1), a_job(2, tenant="other"))
    await store.take("a")
    answer = await store.jobs.claim(warm("a"))
    assert isinstance(answer, NothingToDo)
    assert answer.reason is NoJob.POD_IN_USE


async def test_a_pod_that_has_had_its_job_gets_no_other(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    await store.end(1, "r-a")
    assert await store.jobs.claim(warm("a")) == NothingToDo(NoJob.POD_SPENT)
    assert await store.state(2) is JobState.QUEUED


async def test_an_empty_queue_is_said(store: Store) -> None:
    await store.limit()
    assert await store.jobs.claim(warm("a")) == NothingToDo(NoJob.EMPTY)


async def test_a_pod_gets_jobs_of_its_own_pool_only(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1, pool="mac"))
    assert await store.jobs.claim(warm("a")) == NothingToDo(NoJob.EMPTY)


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(Size(3, 999_999), id="vCPU is what is short"),
        pytest.param(Size(999, 4096 + 4095), id="memory is what is short"),
    ],
)
async def test_a_tenant_never_gets_more_than_its_limit(store: Store, limit: Size) -> None:
    await store.jobs.set_limits("acme", Os.LINUX, limit, by="test")
    await store.queue(a_job(1), a_job(2))
    await store.take("a")
    before = await store.views.audit()
    assert await store.jobs.claim(warm("b")) == NothingToDo(NoJob.CAPPED)
    assert await store.state(2) is JobState.QUEUED
    assert await store.views.claim_of("b") is None
    assert await store.views.audit() == before


async def test_a_tenant_without_a_limit_gets_nothing_and_stands_in_nobodys_way(
    store: Store,
) -> None:
    await store.limit("other")
    await store.queue(a_job(1))
    assert await store.jobs.claim(warm("a")) == NothingToDo(NoJob.NO_LIMITS)
    await store.queue(a_job(2, tenant="other"))
    assert (await store.take("a")).job.spec.id == "forge/2"


async def test_each_os_has_a_limit_of_its_own(store: Store) -> None:
    await store.limit(vcpus=2)
    await store.limit(vcpus=2, os=Os.DARWIN)
    await store.queue(a_job(1), a_job(2, os=Os.DARWIN, pool="mac"))
    await store.take("a")
    await store.take("b", "mac")


async def test_a_limit_of_nothing_stops_a_tenant(store: Store) -> None:
    await store.limit(vcpus=0)
    await store.queue(a_job(1))
    assert await store.jobs.claim(warm("a")) == NothingToDo(NoJob.CAPPED)


async def test_a_lowered_limit_ends_nothing_and_lets_nothing_start(store: Store) -> None:
    await store.limit(vcpus=4)
    await store.queue(a_job(1), a_job(2), a_job(3))
    await store.run("a")
    await store.run("b")
    await store.limit(vcpus=2)
    assert await store.jobs.claim(warm("c")) == NothingToDo(NoJob.CAPPED)
    await store.end(1, "r-a")
    assert await store.jobs.claim(warm("c")) == NothingToDo(NoJob.CAPPED)
    await store.end(2, "r-b")
    await store.take("c")


async def test_a_limit_is_given_once_and_then_kept(store: Store) -> None:
    assert await store.jobs.ensure_limits("acme", Os.LINUX, Size(4, 8192), by="test")
    assert not await store.jobs.ensure_limits("acme", Os.LINUX, Size(99, 99), by="test")
    assert [s.limit for s in await store.views.standings("acme")] == [Size(4, 8192)]


async def test_sixteen_capped_tenants_ahead_cost_the_next_one_nothing(store: Store) -> None:
    for number in range(16):
        await store.limit(f"capped-{number}", vcpus=1)
        await store.queue(a_job(number, tenant=f"capped-{number}"))
    await store.limit()
    await store.queue(a_job(100))
    claimed = await store.take("a")
    assert claimed.job.spec.id == "forge/100"
    assert [job.attempts for job in await store.views.jobs(states={JobState.QUEUED})] == [0] * 16


async def test_a_job_larger_than_what_is_left_does_not_stand_before_one_that_fits(
    store: Store,
) -> None:
    await store.limit(vcpus=4)
    await store.queue(a_job(1, size=Size(16, 4096)), a_job(2))
    assert (await store.take("a")).job.spec.id == "forge/2"


@pytest.mark.parametrize(
    "without",
    [
        pytest.param(Without(tenants=frozenset({"acme"})), id="its tenant"),
        pytest.param(Without(repositories=frozenset({"acme/app"})), id="its repository"),
        pytest.param(Without(jobs=frozenset({"forge/1"})), id="the job"),
    ],
)
async def test_what_just_failed_is_left_out_and_the_next_one_goes(
    store: Store, without: Without
) -> None:
    await store.limit()
    await store.limit("other")
    await store.queue(a_job(1))
    assert await store.jobs.claim(warm("a"), without=without) == NothingToDo(NoJob.HELD)
    await store.queue(a_job(2, tenant="other", repository="other/app"))
    assert (await store.take("a", without=without)).job.spec.id == "forge/2"


async def test_a_job_that_is_held_back_waits_and_lets_others_pass(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claimed = await store.take("a")
    later = store.clock.now() + timedelta(seconds=30)
    await store.jobs.release(claimed.claim, because(hold_until=later))
    assert await store.jobs.claim(warm("b")) == NothingToDo(NoJob.HELD)
    await store.queue(a_job(2))
    assert (await store.take("b")).job.spec.id == "forge/2"
    store.clock.forward(30)
    again = await store.take("c")
    assert (again.job.spec.id, again.job.attempts, again.job.hold_until) == ("forge/1", 2, None)


async def test_a_delivery_makes_the_job_run_and_opens_the_session(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claimed = await store.take("a")
    store.clock.forward(2)
    running = await store.jobs.mark_running(claimed.claim, "r-a")
    assert isinstance(running, Running)
    assert running.job.state is JobState.RUNNING
    assert running.job.runner_name == "r-a"
    assert running.job.started_at == store.clock.now()
    assert running.session.started_at == claimed.claim.claimed_at
    assert running.session.size == a_job(1).size
    live = await store.views.claim_of("a")
    assert live is not None
    assert (live.runner_name, live.delivered_at) == ("r-a", store.clock.now())
    assert await store.views.session_of("a") == running.session
    assert await store.audit(1) == ["enqueued", "claimed", "running"]


async def test_a_delivery_may_be_repeated_but_not_with_another_runner(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claimed = await store.take("a")
    first = await store.jobs.mark_running(claimed.claim, "r-a")
    store.clock.forward(1)
    assert await store.jobs.mark_running(claimed.claim, "r-a") == first
    assert await store.jobs.mark_running(claimed.claim, "r-b") == Stale(Fence.DELIVERED)


async def test_a_late_mint_cannot_touch_the_replacement(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    first = await store.take("a")
    await store.jobs.release(first.claim, because("the mint took too long"))
    second = await store.take("b")
    assert await store.jobs.mark_running(first.claim, "r-a") == Stale(Fence.GONE)
    assert (await store.job(1)).claim == second.claim
    assert await store.views.session_of("a") is None


async def test_a_late_mint_for_the_same_pod_is_fenced_by_the_token(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    first = await store.take("a")
    await store.jobs.release(first.claim, because(undelivered=True))
    second = await store.take("a")
    assert await store.jobs.mark_running(first.claim, "r-a") == Stale(Fence.GONE)
    assert isinstance(await store.jobs.mark_running(second.claim, "r-b"), Running)


async def test_nothing_is_handed_out_for_a_job_that_is_over(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claimed = await store.take("a")
    await store.end(1, conclusion="cancelled")
    assert await store.jobs.mark_running(claimed.claim, "r-a") == Stale(Fence.OVER)
    released = await store.jobs.release(claimed.claim, because(undelivered=True))
    assert released == Released("forge/1", requeued=False)
    assert await store.state(1) is JobState.CANCELLED


async def test_a_lost_answer_is_delivered_again_under_a_new_name_within_the_window(
    store: Store,
) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    first = await store.jobs.mark_running(claim, "r-1")
    assert isinstance(first, Running)
    window = timedelta(seconds=60)
    store.clock.forward(60)
    again = await store.jobs.deliver_again(claim, "r-2", within=window)
    assert isinstance(again, Running)
    assert (again.replaced_runner, again.session.runner_name) == ("r-1", "r-2")
    assert again.job.started_at == first.job.started_at
    store.clock.forward(1)
    # The window is counted from the first delivery: repeating does not stretch it.
    assert await store.jobs.deliver_again(claim, "r-3", within=window) == Stale(Fence.TOO_LATE)


async def test_a_second_delivery_is_refused_once_the_runner_executes(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.run("a")).job.claim
    assert claim is not None
    await store.executes(1, "r-a")
    answer = await store.jobs.deliver_again(claim, "r-2", within=timedelta(hours=1))
    assert answer == Stale(Fence.EXECUTING)


async def test_a_second_delivery_to_another_pod_is_refused(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    claim = (await store.run("a")).job.claim
    await store.run("b")
    assert claim is not None
    stolen = type(claim)(claim.job_id, "b", "uid-b", claim.claimed_at)
    answer = await store.jobs.deliver_again(stolen, "r-2", within=timedelta(hours=1))
    assert answer == Stale(Fence.GONE)


async def _both(store: Store, *, delivered: bool) -> Claim:
    await store.limit(vcpus=2)
    await store.queue(a_job(1), a_job(2))
    claim = (await store.take("a")).claim
    if delivered:
        await store.jobs.mark_running(claim, "r-a")
    return claim


@pytest.mark.parametrize("delivered", [False, True], ids=["before the mint", "after the mint"])
async def test_a_released_job_goes_back_to_its_old_place_and_its_room_is_free(
    store: Store, *, delivered: bool
) -> None:
    claim = await _both(store, delivered=delivered)
    store.clock.forward(1)
    assert await store.jobs.release(claim, because()) == Released("forge/1", requeued=True)
    job = await store.job(1)
    assert (job.state, job.claim, job.runner_name, job.started_at) == (
        JobState.QUEUED,
        None,
        "",
        None,
    )
    assert (await store.take("b")).job.spec.id == "forge/1"
    assert "released" in await store.audit(1)


@pytest.mark.parametrize("delivered", [False, True], ids=["before the mint", "after the mint"])
async def test_an_old_handle_releases_nothing(store: Store, *, delivered: bool) -> None:
    claim = await _both(store, delivered=delivered)
    before = (await store.job(1), await store.views.claims(), await store.views.audit())
    assert await store.jobs.release(older(claim), because()) == Stale(Fence.GONE)
    undelivered = because(undelivered=True)
    assert await store.jobs.release(older(claim), undelivered) == Stale(Fence.GONE)
    assert (await store.job(1), await store.views.claims(), await store.views.audit()) == before


async def test_a_handle_works_once(store: Store) -> None:
    claim = await _both(store, delivered=False)
    await store.jobs.release(claim, because())
    assert await store.jobs.release(claim, because()) == Stale(Fence.GONE)


async def test_a_pod_that_never_got_the_config_may_ask_again(store: Store) -> None:
    claim = await _both(store, delivered=True)
    await store.jobs.release(claim, because("its client was gone", undelivered=True))
    assert await store.views.session_of("a") is None
    assert (await store.take("a")).job.spec.id == "forge/1"


async def test_a_pod_that_may_have_the_config_gets_no_other_job(store: Store) -> None:
    claim = await _both(store, delivered=True)
    await store.jobs.release(claim, because("the forge says it waits"))
    assert await store.jobs.claim(warm("a")) == NothingToDo(NoJob.POD_SPENT)
    assert await store.views.occupied_pods() == {"a"}


async def test_a_claim_whose_runner_executes_is_not_given_back_as_undelivered(
    store: Store,
) -> None:
    claim = await _both(store, delivered=True)
    await store.executes(1, "r-a")
    answer = await store.jobs.release(claim, because(undelivered=True))
    assert answer == Stale(Fence.EXECUTING)
    assert await store.state(1) is JobState.RUNNING


async def test_a_release_that_races_the_end_of_the_job_leaves_the_end(store: Store) -> None:
    claim = await _both(store, delivered=True)
    await store.end(1, "r-a")
    ended = await store.job(1)
    assert await store.jobs.release(claim, because()) == Stale(Fence.OVER)
    assert await store.job(1) == ended


async def test_stale_claims_are_listed_without_the_young_and_the_delivered(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2), a_job(3))
    old = await store.take("a")
    await store.run("b")
    store.clock.forward(300)
    await store.take("c")
    before = store.clock.now() - timedelta(seconds=100)
    stale = await store.views.claims(claimed_before=before, undelivered=True)
    assert [live.claim for live in stale] == [old.claim]
    assert len(await store.views.claims()) == 3


async def test_a_claim_is_released_for_a_missing_pod_at_the_second_look_only(store: Store) -> None:
    claim = await _both(store, delivered=True)
    sighted = await store.jobs.sight_pods(present=[], absent=[claim], by="sweep")
    assert (sighted.missing, sighted.back) == (1, 0)
    since = store.clock.now()
    store.clock.forward(60)
    await store.jobs.sight_pods(present=[], absent=[claim], by="sweep")
    live = await store.views.claim_of("a")
    assert live is not None
    assert live.missing_since == since
    released = await store.jobs.release(claim, because(missing_since=since))
    assert released == Released("forge/1", requeued=True)


async def test_a_pod_that_is_seen_again_keeps_its_claim(store: Store) -> None:
    claim = await _both(store, delivered=True)
    await store.jobs.sight_pods(present=[], absent=[claim], by="sweep")
    since = store.clock.now()
    store.clock.forward(60)
    sighted = await store.jobs.sight_pods(present=[claim], absent=[], by="sweep")
    assert (sighted.missing, sighted.back) == (0, 1)
    answer = await store.jobs.release(claim, because(missing_since=since))
    assert answer == Stale(Fence.SEEN)


async def test_an_old_sighting_says_nothing_about_a_new_claim_of_the_pod(store: Store) -> None:
    claim = await _both(store, delivered=False)
    await store.jobs.release(claim, because())
    fresh = await store.take("a")
    sighted = await store.jobs.sight_pods(present=[], absent=[claim], by="sweep")
    assert sighted.missing == 0
    assert isinstance(fresh, Claimed)


async def test_an_attempt_that_a_second_one_has_overtaken_gives_nothing_back(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    await store.jobs.mark_running(claim, "r-2")
    mine = because(undelivered=True, runner_name="r-1")
    nothing_minted = because(undelivered=True, runner_name="")
    assert await store.jobs.release(claim, mine) == Stale(Fence.DELIVERED)
    assert await store.jobs.release(claim, nothing_minted) == Stale(Fence.DELIVERED)
    assert await store.views.session_of("a") is not None
    released = await store.jobs.release(claim, because(undelivered=True, runner_name="r-2"))
    assert released == Released("forge/1", requeued=True)


async def test_an_attempt_that_minted_nothing_gives_its_claim_back(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    mine = because(undelivered=True, runner_name="r-1")
    assert await store.jobs.release(claim, mine) == Stale(Fence.DELIVERED)
    released = await store.jobs.release(claim, because(undelivered=True, runner_name=""))
    assert released == Released("forge/1", requeued=True)


async def test_an_overtaken_attempt_gives_nothing_back_after_its_pod_stopped(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    running = await store.run("a")
    await store.stop("a")
    assert running.job.claim is not None
    other = because(undelivered=True, runner_name="r-other")
    assert await store.jobs.release(running.job.claim, other) == Stale(Fence.DELIVERED)
    assert await store.state(1) is JobState.RUNNING


async def test_a_handle_of_one_tenant_passes_for_none_of_another_with_the_same_token(
    store: Store,
) -> None:
    await store.limit()
    await store.limit("other")
    await store.queue(a_job(1))
    first = await store.take("a")
    await store.jobs.release(first.claim, because(undelivered=True))
    await store.end(1)
    await store.queue(a_job(2, tenant="other"))
    second = await store.take("a")
    # The clock stands still, and each tenant has tokens of its own.
    assert second.claim.claimed_at == first.claim.claimed_at
    assert await store.jobs.mark_running(first.claim, "r-a") == Stale(Fence.GONE)
    assert await store.jobs.release(first.claim, because(undelivered=True)) == Stale(Fence.GONE)
    assert isinstance(await store.jobs.mark_running(second.claim, "r-a"), Running)
