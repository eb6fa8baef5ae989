"""Claims that nothing came of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.dispatch.workers.stale_claims import StaleClaims
from remuda.model.job import JobState
from remuda.ports.jobs import Running
from tests.unit.dispatch.yard import story
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from tests.unit.dispatch.yard import Yard


async def claimed(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.stamp("p", await yard.take("p"))


@story()
async def test_a_claim_that_nothing_came_of_goes_back_and_its_pod_serves_again(yard: Yard) -> None:
    await claimed(yard)

    await yard.turns(StaleClaims(yard.parts), 31)

    assert yard.state(1) is JobState.QUEUED
    assert not await yard.is_stamped("p")
    assert yard.mended("stale_claim") == 1
    assert (await yard.take("p")).job_id == "forge/1"


@story()
async def test_a_claim_is_left_alone_until_its_grace_has_passed_on_our_own_clock(
    yard: Yard,
) -> None:
    await claimed(yard)
    worker = StaleClaims(yard.parts)
    await yard.later(3600)  # whatever the stamps in the database say

    await worker.tick()
    await yard.later(29)
    await worker.tick()

    assert yard.state(1) is JobState.CLAIMED


@story()
async def test_the_next_look_comes_when_the_grace_ends(yard: Yard) -> None:
    await claimed(yard)
    worker = StaleClaims(yard.parts)
    await worker.tick()
    await yard.later(27)

    assert await worker.tick() == 3.0


@story()
async def test_what_was_handed_over_is_never_stale(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.deliver("p")

    await yard.turns(StaleClaims(yard.parts), 600)

    assert yard.state(1) is JobState.RUNNING


@story()
async def test_a_hand_over_between_the_look_and_the_release_wins(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    claim = await yard.take("p")
    await yard.stamp("p", claim)
    worker = StaleClaims(yard.parts)
    await worker.tick()
    await yard.later(30)
    seen = await yard.parts.views.claims(undelivered=True)
    assert isinstance(await yard.jobs.mark_running(claim, "r-p"), Running)

    await worker._release(seen[0])  # noqa: SLF001 - what it does with what it saw before

    assert yard.state(1) is JobState.RUNNING
    assert await yard.is_stamped("p"), "a runner with a job keeps its stamp"
    assert yard.session("p").ended_at is None


@story()
async def test_a_claim_made_anew_between_the_look_and_the_release_stays(yard: Yard) -> None:
    await claimed(yard)
    worker = StaleClaims(yard.parts)
    await worker.tick()
    await yard.later(30)
    (old,) = await yard.parts.views.claims(undelivered=True)
    await worker.tick()
    fresh = await yard.take("p")
    await yard.stamp("p", fresh)

    await worker._release(old)  # noqa: SLF001 - what it does with what it saw before

    assert yard.tables.claims["p"].claim == fresh
    assert await yard.is_stamped("p")


@story()
async def test_a_stamp_that_could_not_be_taken_off_holds_no_release_up(yard: Yard) -> None:
    await claimed(yard)
    yard.tap.hurts.append(Hurt("PATCH .*/pods/", "dropped", times=99))

    await yard.turns(StaleClaims(yard.parts), 31)

    assert yard.state(1) is JobState.QUEUED
    assert await yard.is_stamped("p"), "the worker of stamps takes it off later"


@story()
async def test_so_many_in_one_turn(yard: Yard) -> None:
    for number in range(1, 29):
        await yard.queue(number)
        await yard.warm_pod(f"p{number}")
        await yard.take(f"p{number}")
    worker = StaleClaims(yard.parts)
    await worker.tick()
    await yard.later(30)

    await worker.tick()

    assert len(yard.tables.claims) == 3
