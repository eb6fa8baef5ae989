"""The operator's reports that runners stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.dispatch.stops import Stops
from remuda.model.job import JobState
from tests.unit.dispatch.yard import QUEUED, down, ended, runs_on, story
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from tests.unit.dispatch.yard import Yard


async def a_run(yard: Yard, pod: str = "p") -> Stops:
    await yard.queue(1)
    await yard.warm_pod(pod)
    await yard.deliver(pod)
    await yard.later(1)
    stops = Stops(yard.parts)
    yard.start(stops.run(), "stops")
    return stops


async def report(yard: Yard, stops: Stops, pod: str = "p") -> None:
    await stops.stopped(pod, ended_at=yard.clock.now(), exit_code=0, reason="Completed")
    await yard.later(1)


@story()
async def test_the_books_of_a_stopped_pod_are_closed_and_its_job_is_asked_about(yard: Yard) -> None:
    stops = await a_run(yard)
    await yard.status("p", phase="Succeeded")
    yard.forge.say(1, ended("success", "r-p"))
    await yard.later(1)

    await report(yard, stops)

    assert yard.tables.claims == {}
    assert yard.session("p").exit_code == 0
    assert yard.state(1) is JobState.COMPLETED


@story()
async def test_a_job_that_waits_again_is_back_at_once(yard: Yard) -> None:
    stops = await a_run(yard)
    await yard.remove("p")
    yard.forge.say(1, QUEUED)

    await report(yard, stops)

    assert yard.state(1) is JobState.QUEUED
    assert yard.mended("orphan_requeued") == 1


@story()
async def test_a_bug_in_an_inquiry_ends_neither_the_loop_nor_its_process(yard: Yard) -> None:
    stops = await a_run(yard)
    await yard.remove("p")
    yard.forge.say(1, ValueError("nobody thought of this"))
    await report(yard, stops)
    yard.forge.say(2, QUEUED)
    await yard.queue(2)
    await yard.warm_pod("q")
    await yard.deliver("q")
    await yard.remove("q")

    await report(yard, stops, "q")

    assert (yard.state(1), yard.state(2)) == (JobState.RUNNING, JobState.QUEUED)


@story()
async def test_a_second_report_changes_nothing(yard: Yard) -> None:
    stops = await a_run(yard)
    await yard.remove("p")
    yard.forge.say(1, runs_on("r-p"))
    await report(yard, stops)
    before = dict(yard.tables.sessions)
    await yard.later(100)

    await report(yard, stops)

    assert yard.tables.sessions == before


@story()
async def test_a_report_about_a_pod_without_a_job_is_taken(yard: Yard) -> None:
    stops = Stops(yard.parts)

    await stops.stopped("nobody", ended_at=yard.clock.now(), exit_code=None, reason="")

    assert yard.tables.claims == {}


@story()
async def test_a_late_report_does_not_end_what_a_namesake_does(yard: Yard) -> None:
    stops = await a_run(yard)

    await report(yard, stops)  # of an earlier Pod: this one is up

    assert "p" in yard.tables.claims
    assert yard.session("p").ended_at is None


@story()
async def test_a_late_report_does_not_end_what_a_namesake_does_that_our_view_lacks(
    yard: Yard,
) -> None:
    stops = await a_run(yard)
    yard.tap.frozen = "/pods"
    await yard.remove("p")
    await yard.warm_pod("p")
    fresh_uid = await yard.uid("p")

    await report(yard, stops)

    assert await yard.uid("p") == fresh_uid
    assert yard.session("p").ended_at is None, "the worker of missing Pods closes it"


@story()
async def test_a_report_that_nobody_can_check_is_left_to_the_workers(yard: Yard) -> None:
    stops = await a_run(yard)
    yard.tap.hurts.append(Hurt("GET .*/pods/p$", "dropped"))

    await report(yard, stops)

    assert "p" in yard.tables.claims


@story()
async def test_a_forge_that_does_not_answer_holds_no_report_up(yard: Yard) -> None:
    stops = await a_run(yard)
    await yard.remove("p")
    yard.forge.say(1, down())

    await report(yard, stops)

    assert yard.tables.claims == {}
    assert yard.state(1) is JobState.RUNNING


@story()
async def test_an_end_in_the_future_counts_as_now(yard: Yard) -> None:
    stops = await a_run(yard)
    await yard.remove("p")
    ahead = yard.clock.now().replace(year=2030)

    await stops.stopped("p", ended_at=ahead, exit_code=0, reason="")

    assert yard.session("p").ended_at == yard.clock.now()
