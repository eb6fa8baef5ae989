"""What one pool, host or clock that is wrong may cost the others: stories of the whole operator, on virtual time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from remuda.kube.core import NODE, POD
from remuda.kube.names import POOL, POOL_DRAIN
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.runner import Phase
from remuda.ports.kube import NotFound
from remuda.sim.clock import SimClock
from tests.unit.pools.ranch import SPACE, Hurt, Ranch, scenario

if TYPE_CHECKING:
    from remuda.kube.patches import JsonValue

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


async def fail_all(ranch: Ranch, exit_code: int = 1) -> None:
    """End every runner half a second after it got its host."""
    ended: JsonValue = {"name": "runner", "state": {"terminated": {"exitCode": exit_code}}}
    over = MergePatch({"status": {"phase": "Failed", "containerStatuses": [ended]}})
    while True:
        for pod in await ranch.pods():
            if pod.spec.node_name and pod.status.phase not in {"Succeeded", "Failed"}:
                with suppress(NotFound):
                    await ranch.kube.patch(
                        POD, pod.name, over, namespace=SPACE, subresource="status"
                    )
        await ranch.later(0.5)


@scenario()
async def test_runners_that_end_as_soon_as_they_begin_are_not_replaced_in_a_tight_loop(
    ranch: Ranch,
) -> None:
    ranch.host(boot_s=30.0)
    await ranch.add_pool(replicas=2)
    killer = ranch.start(fail_all(ranch), "killer")
    ranch.operator()
    await ranch.later(600)

    assert 5 <= len(ranch.tap.of("POST .*/pods")) <= 40
    assert ranch.condition(await ranch.pool(), "Degraded") == ("True", "RunnersFail")
    assert (await ranch.reasons()).count("RunnersFail") == 1
    ranch.tap.writes.clear()
    await ranch.later(600)
    assert len(ranch.tap.of("POST .*/pods")) <= 20

    killer.cancel()
    await ranch.warm(2, within_s=150)
    await ranch.later(5)
    assert ranch.condition(await ranch.pool(), "Degraded") == ("False", "AsExpected")


@scenario()
async def test_runners_that_fail_together_are_replaced_at_once(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=4)
    ranch.operator()
    await ranch.warm(4)
    await ranch.later(2)
    for pod in await ranch.pods():
        await ranch.end(pod.name)
    await ranch.later(1)

    await ranch.warm(4, within_s=8)


async def all_jobs_end(ranch: Ranch) -> None:
    """Have every runner take a job and end with it, one after the other."""
    for runner in await ranch.runners():
        await ranch.label(runner.name, owner="acme")
        await ranch.later(1)
        await ranch.end(runner.name)
        await ranch.later(10)


@scenario()
async def test_a_template_that_the_server_refuses_holds_back_none_that_works(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=4)
    ranch.operator()
    await ranch.warm(4)
    await ranch.later(5)
    ranch.tap.hurts.append(Hurt("POST .*/pods", "refused", times=10**6, body=b"runner:2"))
    await ranch.edit("mac", image="registry.test/runner:2")
    await ranch.later(300)
    for runner in (await ranch.runners())[:2]:
        await ranch.label(runner.name, owner="acme")
        await ranch.end(runner.name)

    async def replaced() -> bool:
        return await warm_of(ranch, "mac") == 3

    await ranch.later(1)
    await ranch.until(replaced, within_s=8)
    assert ranch.condition(await ranch.pool(), "Degraded") == ("True", "CreateRefused")


@scenario()
async def test_jobs_that_end_under_a_template_that_is_refused_are_followed_by_what_worked(
    ranch: Ranch,
) -> None:
    ranch.host()
    await ranch.add_pool(replicas=4)
    ranch.operator()
    await ranch.warm(4)
    await ranch.later(5)
    await ranch.edit("mac", template={"spec": {"restartPolicy": "Always"}})
    await ranch.later(5)
    await all_jobs_end(ranch)

    assert await warm_of(ranch, "mac") == 4
    assert ranch.condition(await ranch.pool(), "Degraded") == ("True", "TemplateRefused")


@scenario()
async def test_a_finalizer_that_a_person_takes_off_a_live_pool_is_put_back(ranch: Ranch) -> None:
    await ranch.add_pool(replicas=0)
    ranch.operator()
    await ranch.later(5)
    bare = MergePatch({"metadata": {"finalizers": []}})
    await ranch.kube.patch(RUNNER_POOL, "mac", bare, namespace=SPACE)
    await ranch.later(5)

    assert (await ranch.pool()).metadata.finalizers == (POOL_DRAIN,)


@scenario()
async def test_the_runners_of_a_host_that_fell_silent_hold_no_start_slots(ranch: Ranch) -> None:
    ranch.host("mini-1", vms=4)
    await ranch.add_pool(replicas=4)
    ranch.operator()
    await ranch.warm(4)
    [silent] = [task for task in ranch.tasks if task.get_name() == "mini-1"]
    silent.cancel()
    # What the node controller writes some 40 s later:
    unready: JsonValue = {"conditions": [{"type": "Ready", "status": "False"}]}
    patch = MergePatch({"status": unready})
    await ranch.kube.patch(NODE, "mini-1", patch, subresource="status")
    for pod in await ranch.pods():
        await ranch.kube.patch(POD, pod.name, patch, namespace=SPACE, subresource="status")
    ranch.host("mini-2")
    await ranch.add_pool("other", replicas=2)

    async def served() -> bool:
        return await warm_of(ranch, "other") == 2

    await ranch.until(served, within_s=30)


@scenario()
async def test_a_template_that_tolerates_everything_does_not_fight_a_cordon(ranch: Ranch) -> None:
    ranch.host("mini-1")
    ranch.host("mini-2")
    anything = {"spec": {"tolerations": [{"operator": "Exists"}]}}
    await ranch.add_pool(replicas=4, template=anything)
    ranch.operator()
    await ranch.warm(4)
    await ranch.cordon("mini-1")
    await ranch.later(60)
    ranch.tap.writes.clear()
    await ranch.later(120)

    assert {runner.node for runner in await ranch.runners()} == {"mini-2"}
    assert ranch.tap.writes == []


@scenario()
async def test_a_runner_that_a_person_took_out_before_it_was_seen_is_replaced(ranch: Ranch) -> None:
    ranch.host()
    await ranch.add_pool(replicas=0)
    ranch.operator()
    await ranch.later(5)
    ranch.tap.frozen = "/pods"
    await ranch.edit("mac", replicas=1)
    await ranch.later(5)
    [pod] = await ranch.pods()
    await ranch.label(pod.name, pool=None, runner=None)
    ranch.tap.frozen = ""

    async def replaced() -> bool:
        return await warm_of(ranch, "mac") == 1

    await ranch.until(replaced)


@pytest.mark.parametrize("later_s", [20.0, 21.3, 22.7, 24.1])
@pytest.mark.parametrize("slots", [1, 4])
def test_a_pool_that_no_host_fits_starves_its_siblings_for_no_longer_than_its_deadline(
    slots: int, later_s: float
) -> None:
    starting = {"startTimeoutSeconds": 120, "maxConcurrent": slots}

    @scenario()
    async def play(ranch: Ranch) -> None:
        ranch.host()
        await ranch.add_pool("big", replicas=8, provisioning=starting, template=NOWHERE)
        ranch.operator()
        await ranch.later(later_s)
        await ranch.add_pool("small", replicas=1, provisioning=starting)

        async def served() -> bool:
            return await warm_of(ranch, "small") == 1

        await ranch.until(served, within_s=135)

    play()
