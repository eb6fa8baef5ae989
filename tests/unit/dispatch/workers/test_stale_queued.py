"""Jobs that have waited here for long, and what the forge says about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.workers.stale_queued import StaleQueued
from remuda.model.job import JobState
from tests.unit.dispatch.yard import GONE, QUEUED, down, ended, runs_on, story

if TYPE_CHECKING:
    from remuda.ports.forge import ForgeJob
    from tests.unit.dispatch.yard import Yard

DAYS = 48 * 3600.0


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        pytest.param(ended("cancelled"), JobState.CANCELLED, id="cancelled there: over here"),
        pytest.param(ended("success", "alien"), JobState.COMPLETED, id="run by somebody else"),
        pytest.param(QUEUED, JobState.QUEUED, id="it waits there too, for days: it is kept"),
        pytest.param(runs_on("alien"), JobState.QUEUED, id="runs on a runner that is not ours"),
        pytest.param(down(), JobState.QUEUED, id="no answer for days: it is kept"),
        pytest.param(GONE, JobState.COMPLETED, id="gone, said again and again: over"),
    ],
)
def test_after_two_days(answer: ForgeJob | Exception, state: JobState) -> None:
    @story()
    async def play(yard: Yard) -> None:
        await yard.queue(1)
        yard.forge.say(1, answer)
        worker = StaleQueued(yard.parts)
        await yard.later(301)

        for _ in range(20):
            await worker.tick()
            await yard.later(DAYS / 20)

        assert yard.state(1) is state
        over = state is not JobState.QUEUED
        assert yard.mended("queued_completed") == (1 if over else 0)

    play()


@story()
async def test_a_young_job_is_not_asked_about(yard: Yard) -> None:
    await yard.queue(1)
    await yard.later(299)

    await StaleQueued(yard.parts).tick()

    assert yard.forge.asked == []


@story()
async def test_gone_once_does_not_end_a_job(yard: Yard) -> None:
    await yard.queue(1)
    yard.forge.say(1, GONE)
    worker = StaleQueued(yard.parts)
    await yard.later(301)
    await yard.turns(worker, 50)
    assert yard.state(1) is JobState.QUEUED

    yard.forge.say(1, QUEUED)
    await yard.turns(worker, 3600)
    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_job_that_runs_on_a_runner_of_ours_is_bound_to_it(yard: Yard) -> None:
    await yard.queue(1, 2)
    await yard.warm_pod("p")
    await yard.deliver("p")
    yard.forge.say(2, runs_on("r-p"))
    await yard.later(301)

    await StaleQueued(yard.parts).tick()

    assert yard.state(2) is JobState.RUNNING
    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_job_whose_pool_is_gone_waits_on(yard: Yard) -> None:
    await yard.queue(1, pool="no-such-pool")
    worker = StaleQueued(yard.parts)
    await yard.later(DAYS)

    await worker.tick()

    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_long_queue_is_asked_about_bit_by_bit_and_not_again_at_once(yard: Yard) -> None:
    await yard.queue(*range(1, 61))
    worker = StaleQueued(yard.parts)
    await yard.later(301)

    await worker.tick()
    assert len(yard.forge.asked) == 25

    await yard.turns(worker, 120)
    assert len(yard.forge.asked) == len(set(yard.forge.asked)) == 60


@story()
async def test_a_job_claimed_while_the_forge_thought_is_ended_by_its_word_all_the_same(
    yard: Yard,
) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    yard.forge.say(1, ended("cancelled"))

    async def think() -> None:
        await yard.deliver("p")

    yard.forge.meanwhile = think
    await yard.later(301)

    await StaleQueued(yard.parts).tick()

    assert yard.state(1) is JobState.CANCELLED
    assert "p" in yard.tables.claims, "its Pod may be given a sibling: the claim stays with it"
