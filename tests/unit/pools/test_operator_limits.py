"""What one pool, host or clock that is wrong may cost the others: stories of the whole operator, on virtual time."""

from __future__ import annotations

import asyncio

from remuda.kube.names import POOL
from remuda.model.runner import Phase
from remuda.sim.clock import SimClock
from tests.unit.pools.ranch import Ranch, scenario

NOWHERE = {"spec": {"nodeSelector": {"example.test/no": "where"}}}


async def warm_of(ranch: Ranch, pool: str) -> int:
    runners = {runner.name: runner for runner in await ranch.runners()}
    names = [pod.name for pod in await ranch.pods() if pod.labels.get(POOL) == pool]
    return sum(runners[name].phase is Phase.WARM for name in names if name in runners)


@scenario()
async def test_a_pool_without_a_deadline_starves_its_siblings_for_no_longer_than_the_default_one(
    ranch: Ranch,
) -> None:
    ranch.host()
    await ranch.add_pool(
        "big", replicas=8, provisioning={"startTimeoutSeconds": 0}, template=NOWHERE
    )
    ranch.operator()
    await ranch.later(20)
    await ranch.add_pool("small", replicas=2)

    async def served() -> bool:
        return await warm_of(ranch, "small") == 2

    await ranch.until(served, within_s=320)
    await ranch.later(600)
    waiting = [pod for pod in await ranch.pods() if pod.labels[POOL] == "big"]
    assert len(waiting) == 4  # it still waits for itself


@scenario()
async def test_an_operator_whose_clock_is_ahead_ends_no_start_that_goes_well(ranch: Ranch) -> None:
    ranch.host(boot_s=30.0)
    await ranch.add_pool(replicas=2)
    ranch.clock = SimClock(asyncio.get_running_loop(), skew_s=300.0)
    ranch.operator()
    await ranch.warm(2, within_s=60)

    assert ranch.tap.of("DELETE") == []


@scenario()
async def test_an_operator_whose_clock_is_behind_ends_a_start_that_hangs_in_time(
    ranch: Ranch,
) -> None:
    ranch.host(boot_s=10_000.0)
    await ranch.add_pool(replicas=1, provisioning={"startTimeoutSeconds": 60})
    ranch.clock = SimClock(asyncio.get_running_loop(), skew_s=-300.0)
    ranch.operator()
    await ranch.later(100)

    assert await ranch.reasons() == ["StartTimedOut"]


@scenario()
async def test_runners_that_a_person_took_out_of_their_pool_hold_no_start_slots(
    ranch: Ranch,
) -> None:
    ranch.host(boot_s=10_000.0, vms=4)
    await ranch.add_pool(replicas=4, provisioning={"startTimeoutSeconds": 3000})
    ranch.operator()
    await ranch.later(20)
    for pod in await ranch.pods():
        await ranch.label(pod.name, pool=None)
    ranch.host("mini-2")

    async def replaced() -> bool:
        return await warm_of(ranch, "mac") == 4

    await ranch.until(replaced)
