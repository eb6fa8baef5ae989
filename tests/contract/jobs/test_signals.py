"""What the autoscaler is told: demand that could start, each tenant's room counted once, occupancy through teardown."""

from __future__ import annotations

from datetime import timedelta

from remuda.model.job import Os, Size
from remuda.ports.dispatch import Signals
from tests.support.jobs import Store, a_job, because


async def test_an_unknown_pool_has_no_work(store: Store) -> None:
    assert await store.views.signals("nowhere") == Signals()


async def test_all_that_waits_counts_while_there_is_room(store: Store) -> None:
    await store.limit(vcpus=8)
    await store.queue(a_job(1), a_job(2), a_job(3, pool="other"))
    store.clock.forward(61)
    signals = await store.views.signals("linux")
    assert (signals.queued, signals.withheld, signals.oldest_queued_s) == (2, 0, 60.0)


async def test_what_a_tenant_has_no_room_for_is_withheld(store: Store) -> None:
    await store.limit(vcpus=6)
    await store.queue(*(a_job(n) for n in range(1, 6)))
    await store.take("a")
    signals = await store.views.signals("linux")
    assert (signals.queued, signals.withheld, signals.claimed) == (2, 2, 1)


async def test_memory_withholds_as_vcpu_does(store: Store) -> None:
    await store.jobs.set_limits("acme", Os.LINUX, Size(100, 4096 * 2), by="test")
    await store.queue(*(a_job(n) for n in range(1, 4)))
    signals = await store.views.signals("linux")
    assert (signals.queued, signals.withheld) == (2, 1)


async def test_the_same_room_is_not_counted_in_two_pools(store: Store) -> None:
    await store.limit(vcpus=6)
    await store.queue(a_job(1, pool="x"), a_job(2, pool="y"), a_job(3, pool="y"))
    await store.queue(a_job(4, pool="x"), a_job(5, pool="x"))
    x, y = await store.views.signals("x"), await store.views.signals("y")
    assert (x.queued, x.withheld) == (1, 2)
    assert (y.queued, y.withheld) == (2, 0)


async def test_each_tenant_has_room_of_its_own(store: Store) -> None:
    await store.limit(vcpus=2)
    await store.limit("other", vcpus=2)
    await store.queue(a_job(1), a_job(2), a_job(3, tenant="other"))
    signals = await store.views.signals("linux")
    assert (signals.queued, signals.withheld) == (2, 1)


async def test_a_tenant_without_a_limit_withholds_everything(store: Store) -> None:
    await store.queue(a_job(1), a_job(2))
    signals = await store.views.signals("linux")
    assert (signals.queued, signals.withheld) == (0, 2)


async def test_a_job_that_never_fits_does_not_hide_those_that_do(store: Store) -> None:
    await store.limit(vcpus=4)
    await store.queue(a_job(1, size=Size(64, 1)), a_job(2), a_job(3))
    signals = await store.views.signals("linux")
    assert (signals.queued, signals.withheld) == (2, 1)


async def test_room_below_zero_is_no_room(store: Store) -> None:
    await store.limit(vcpus=4)
    await store.queue(a_job(1), a_job(2), a_job(3))
    await store.take("a")
    await store.take("b")
    await store.limit(vcpus=2)
    signals = await store.views.signals("linux")
    assert (signals.queued, signals.withheld) == (0, 1)


async def test_a_job_that_is_held_back_could_not_start_now(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    until = store.clock.now() + timedelta(minutes=1)
    await store.jobs.release(claim, because(hold_until=until))
    signals = await store.views.signals("linux")
    assert (signals.queued, signals.withheld) == (0, 0)
    store.clock.forward(60)
    assert (await store.views.signals("linux")).queued == 1


async def test_a_pod_is_occupied_until_it_stops(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    await store.take("b")
    await store.end(1, "r-a")
    signals = await store.views.signals("linux")
    assert (signals.claimed, signals.occupied) == (1, 2)
    await store.stop("a")
    assert (await store.views.signals("linux")).occupied == 1


async def test_the_busiest_minutes_of_the_last_hour_are_told(store: Store) -> None:
    await store.limit(vcpus=100)
    await store.queue(*(a_job(n) for n in range(30)))
    for pod in range(5):
        await store.run(f"early-{pod}")
    store.clock.forward(60)
    for pod in range(5):
        await store.stop(f"early-{pod}")
    store.clock.forward(7200)
    assert (await store.views.signals("linux")).p95_concurrent_last_hour == 0
    for pod in range(3):
        await store.run(f"late-{pod}")
        store.clock.forward(600)
    await store.stop("late-0")
    # 30 busy minutes: 10 with one, 10 with two, 10 with three. The last 5 of 100 are among the three.
    assert (await store.views.signals("linux")).p95_concurrent_last_hour == 3
    assert (await store.views.signals("other")).p95_concurrent_last_hour == 0


async def test_one_short_peak_is_not_the_measure(store: Store) -> None:
    await store.limit(vcpus=100)
    await store.queue(*(a_job(n) for n in range(30)))
    await store.run("steady")
    store.clock.forward(1800)
    for pod in range(8):
        await store.run(f"peak-{pod}")
    store.clock.forward(30)
    for pod in range(8):
        await store.stop(f"peak-{pod}")
    store.clock.forward(1770)
    assert (await store.views.signals("linux")).p95_concurrent_last_hour == 1
