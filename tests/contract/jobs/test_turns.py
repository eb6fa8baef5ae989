"""Whose turn it is: the least served first, in tenants and in their repositories, and nobody waits for ever."""

from __future__ import annotations

from datetime import timedelta

from remuda.model.job import JobState, Size
from remuda.ports.job_views import Turn
from tests.support.jobs import START, Store, a_job, because


async def _served(store: Store, pods: int, first: int = 0) -> list[str]:
    """Let that many Pods ask, one after the other, and tell who was served."""
    found = []
    for number in range(first, first + pods):
        spec = (await store.take(f"pod-{number}")).job.spec
        found.append(spec.tenant)
        store.clock.forward(0.001)
    return found


async def test_a_burst_of_one_tenant_does_not_shut_out_the_next(store: Store) -> None:
    await store.limit("flood", vcpus=100)
    await store.limit("late", vcpus=100)
    await store.queue(*(a_job(n, tenant="flood") for n in range(20)))
    assert await _served(store, 5) == ["flood"] * 5
    await store.queue(*(a_job(n, tenant="late", queued_at=START) for n in range(100, 104)))
    served = await _served(store, 5, first=5)
    assert served == ["late"] * 4 + ["flood"]


async def test_a_share_is_of_the_tenants_own_limit(store: Store) -> None:
    await store.limit("large", vcpus=40)
    await store.limit("small", vcpus=10)
    await store.queue(*(a_job(n, tenant="large") for n in range(10)))
    await store.queue(*(a_job(n, tenant="small") for n in range(10, 20)))
    served = await _served(store, 10)
    assert (served.count("large"), served.count("small")) == (8, 2)


async def test_the_scarcer_of_vcpu_and_memory_counts(store: Store) -> None:
    await store.limit("wide", vcpus=100)
    await store.limit("deep", vcpus=100)
    await store.queue(*(a_job(n, tenant="deep", size=Size(1, 40960)) for n in range(4)))
    await store.queue(*(a_job(n, tenant="wide", size=Size(4, 1)) for n in range(10, 14)))
    assert await _served(store, 4) == ["deep", "wide", "wide", "wide"]


async def test_of_two_that_are_served_alike_the_older_job_goes_first(store: Store) -> None:
    await store.limit("a")
    await store.limit("b")
    await store.queue(a_job(2, tenant="a"), a_job(1, tenant="b"))
    assert await _served(store, 2) == ["b", "a"]


async def test_a_tenant_with_an_endless_job_is_served_again_while_newcomers_keep_coming(
    store: Store,
) -> None:
    await store.limit("stuck", vcpus=4)
    await store.queue(a_job(1, tenant="stuck"), a_job(2, tenant="stuck"))
    await store.take("endless")
    number = 100
    for round_ in range(20):
        store.clock.forward(60)
        newcomer = f"newcomer-{round_}"
        await store.limit(newcomer)
        number += 1
        await store.queue(a_job(number, tenant=newcomer, queued_at=store.clock.now()))
        claimed = await store.take(f"pod-{round_}")
        if claimed.job.spec.tenant == "stuck":
            assert round_ >= 3
            return
    raise AssertionError("the tenant was never served again")


async def test_a_long_queue_counts_no_more_than_the_time_since_the_last_service(
    store: Store,
) -> None:
    await store.limit("flood", vcpus=100)
    await store.queue(*(a_job(n, tenant="flood") for n in range(10)))
    store.clock.forward(7200)
    await _served(store, 3)
    await store.limit("new", vcpus=100)
    await store.queue(a_job(50, tenant="new", queued_at=store.clock.now()))
    store.clock.forward(1)
    assert await _served(store, 1, first=3) == ["new"]


async def test_repositories_of_a_tenant_take_turns(store: Store) -> None:
    await store.limit(vcpus=100)
    await store.queue(*(a_job(n, repository="acme/mono") for n in range(10)))
    await store.queue(a_job(50, repository="acme/lib"), a_job(51, repository="acme/doc"))
    order = []
    for number in range(5):
        spec = (await store.take(f"pod-{number}")).job.spec
        order.append(spec.repository.removeprefix("acme/"))
    assert order == ["mono", "lib", "doc", "mono", "mono"]


async def test_a_repository_with_an_endless_job_is_served_again(store: Store) -> None:
    await store.limit(vcpus=1000)
    await store.queue(a_job(1, repository="acme/slow"), a_job(2, repository="acme/slow"))
    await store.take("endless")
    for round_ in range(30):
        store.clock.forward(5)
        fresh = a_job(100 + round_, repository=f"acme/{round_}", queued_at=store.clock.now())
        await store.queue(fresh)
        if (await store.take(f"pod-{round_}")).job.spec.repository == "acme/slow":
            return
    raise AssertionError("the repository was never served again")


async def test_a_job_that_comes_back_is_the_first_of_its_repository(store: Store) -> None:
    await store.limit(vcpus=100)
    await store.queue(*(a_job(n) for n in range(1, 5)))
    first = await store.take("a")
    await store.take("b")
    store.clock.forward(3600)
    await store.jobs.release(first.claim, because())
    assert (await store.take("c")).job.spec.id == "forge/1"


async def test_room_that_was_given_back_counts_at_once(store: Store) -> None:
    await store.limit("a", vcpus=4)
    await store.limit("b", vcpus=4)
    await store.queue(*(a_job(n, tenant="a") for n in range(1, 4)))
    await store.queue(*(a_job(n, tenant="b") for n in range(11, 14)))
    await store.run("one")
    await store.run("two")
    await store.end(1, "r-one", tenant="a")
    assert (await store.take("three")).job.spec.tenant == "a"


async def test_why_a_job_waits_is_told_from_what_a_claim_looks_at(store: Store) -> None:
    await store.limit(vcpus=2)
    await store.limit("other")
    await store.queue(a_job(1), a_job(2), a_job(3), a_job(9, tenant="other"))
    claimed = await store.take("a")
    store.clock.forward(1)
    waiting = await store.views.waiting("forge/3")
    assert waiting is not None
    assert waiting.job == await store.job(3)
    assert waiting.ahead == 1
    assert waiting.standing is not None
    assert (waiting.standing.used, waiting.standing.room) == (Size(2, 4096), Size(0, 0))
    assert [live.claim for live in waiting.claims] == [claimed.claim]
    other, acme = waiting.turns
    assert other == Turn((await store.views.standings("other"))[0], START + timedelta(seconds=9))
    assert (acme.standing, acme.oldest) == (waiting.standing, START + timedelta(seconds=2))


async def test_a_job_that_does_not_wait_has_no_reason_to(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.take("a")
    assert await store.views.waiting("forge/1") is None
    assert await store.views.waiting("forge/2") is None


async def test_a_job_of_a_tenant_without_a_limit_says_so(store: Store) -> None:
    await store.queue(a_job(1))
    waiting = await store.views.waiting("forge/1")
    assert waiting is not None
    assert (waiting.standing, waiting.turns) == (None, ())
    assert waiting.job.state is JobState.QUEUED
