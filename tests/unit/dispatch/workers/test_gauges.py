"""What every replica shows of queues and invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.doctor import Doctor
from remuda.dispatch.workers.gauges import Gauges
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.job import Kind
from remuda.ports.deliveries import Delivery
from remuda.ports.registrations import Registration
from remuda.sim.fleet.furnish import a_pool
from tests.unit.dispatch.yard import SPACE, story

if TYPE_CHECKING:
    from tests.unit.dispatch.yard import Yard


def violations(yard: Yard) -> dict[str, float]:
    names = ("S1", "S2", "S3", "S8", "V1", "V2", "V3", "V7")
    found = {n: yard.metric("remuda_invariant_violations", invariant=n) for n in names}
    return {name: value for name, value in found.items() if value}


@story()
async def test_a_pool_without_a_queue_shows_zero_and_one_that_is_gone_shows_nothing(
    yard: Yard,
) -> None:
    await yard.kube.create(RUNNER_POOL, a_pool("linux", SPACE))
    await yard.later(1)
    gauges = Gauges(yard.parts)
    await gauges.tick()
    assert yard.metric("remuda_jobs_queued", pool="linux") == 0

    await yard.queue(1, 2)
    await yard.later(30)
    await gauges.tick()
    assert yard.metric("remuda_jobs_queued", pool="linux") == 2
    assert yard.metric("remuda_jobs_oldest_queued_age_seconds", pool="linux") == 30

    yard.tables.jobs.clear()
    await yard.kube.delete(RUNNER_POOL, "linux", namespace=SPACE)
    await yard.later(1)
    await gauges.tick()
    assert yard.metric("remuda_jobs_queued", pool="linux") is None


@story()
async def test_messages_that_wait_are_shown(yard: Yard) -> None:
    await yard.parts.deliveries.record(Delivery(guid="g", event="workflow_job", body=b"{}"))

    await Gauges(yard.parts).tick()

    assert yard.metric("remuda_deliveries_waiting") == 1


@story()
async def test_a_healthy_fleet_breaks_nothing(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.stamp("p", await yard.deliver("p"))
    await yard.executes(1, "r-p")

    await yard.turns(Gauges(yard.parts), 600)

    assert violations(yard) == {}


@story()
async def test_a_job_beside_a_warm_runner_is_told_once_it_lasts_and_untold_once_it_goes(
    yard: Yard,
) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    gauges = Gauges(yard.parts)
    await yard.turns(gauges, 20)
    assert violations(yard) == {}, "a moment is no violation"

    await yard.turns(gauges, 60)
    assert violations(yard) == {"V1": 1}

    await yard.deliver("p")
    await yard.executes(1, "r-p")
    await yard.turns(gauges, 60)
    assert violations(yard) == {}


@story()
async def test_a_leaked_stamp_a_stale_claim_and_a_leaked_registration_are_told(yard: Yard) -> None:
    await yard.queue(1)
    for name in ("p", "q"):
        await yard.warm_pod(name)
    await yard.stamp("p")
    await yard.take("q")
    leaked = Registration(
        runner_name="r", kind=Kind.GITHUB, tenant="acme", repository="", job_id="", pod="x"
    )
    await yard.parts.registrations.note(leaked)

    await yard.turns(Gauges(yard.parts), 1000)

    assert violations(yard) == {"V2": 1, "V3": 1, "V7": 1}


@pytest.mark.parametrize("seconds", [30, 120])
def test_a_claim_without_a_pod_is_told_after_its_grace(seconds: float) -> None:
    @story()
    async def play(yard: Yard) -> None:
        await yard.queue(1)
        await yard.warm_pod("other")
        await yard.warm_pod("p")
        await yard.deliver("p")
        await yard.executes(1, "r-p")
        await yard.remove("p")
        await yard.later(1)

        await yard.turns(Gauges(yard.parts), seconds)

        assert violations(yard) == ({"V3": 1} if seconds > 60 else {})

    play()


@story()
async def test_an_empty_view_accuses_nobody(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.deliver("p")
    await yard.executes(1, "r-p")
    await yard.remove("p")
    await yard.later(1)

    doctor = Doctor(yard.parts)
    for _ in range(20):
        assert (await doctor.examine())["V3"] == ()
        await yard.later(10)
