"""The desk: who is served, who waits, who goes home, and what becomes of a job that does not arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.dispatch.answers import (
    AlreadyDelivered,
    ComeBack,
    Handed,
    Leave,
    NothingYet,
    Refused,
)
from remuda.dispatch.settings import PollSettings
from remuda.model.job import JobState, Kind, Os, Size
from remuda.ports.forge import ForgeRefused, ForgeThrottled, Scope
from remuda.ports.kube import Unavailable
from tests.support.forges import down
from tests.unit.dispatch.hall import SETTINGS, story

if TYPE_CHECKING:
    from tests.unit.dispatch.hall import Hall


@story()
async def test_a_waiting_poll_is_handed_a_job_as_soon_as_there_is_one(hall: Hall) -> None:
    await hall.add_pod()
    asking = hall.ask()
    await hall.later(5)
    before = hall.clock.monotonic()
    await hall.queue(1)

    answer = await asking.answer()

    assert isinstance(answer, Handed)
    assert hall.clock.monotonic() - before < 0.1
    assert answer.job.spec.id == "forge/1"
    assert answer.minted.encoded_jit_config.endswith(answer.runner_name)
    assert answer.runner_name.startswith("a-")
    assert hall.state() is JobState.RUNNING
    assert await hall.is_stamped()
    assert [number for number in hall.tables.registrations.values() if number.number == 1]
    assert hall.forge.minted[0][1].labels == ("fast", "self-hosted")
    assert hall.polled("handed") == 1
    await hall.check()


@story()
async def test_a_poll_of_an_empty_pool_asks_the_database_nothing(hall: Hall) -> None:
    for number in range(20):
        await hall.add_pod(f"p{number}")
    asked = len(hall.wounds.calls)
    polls = [hall.ask(f"p{number}", wait_s=10) for number in range(20)]
    for poll in polls:
        assert await poll.answer() == NothingYet()

    assert set(hall.wounds.calls[asked:]) == {"claimable"}
    assert len(hall.wounds.calls[asked:]) <= 12


@story()
async def test_a_wake_up_that_is_lost_costs_a_beat(hall: Hall) -> None:
    await hall.add_pod()
    asking = hall.ask()
    await hall.later(3)
    hall.wakeups.cut()
    before = hall.clock.monotonic()
    await hall.queue(1)

    assert isinstance(await asking.answer(), Handed)
    assert hall.clock.monotonic() - before <= 1.3


@story()
async def test_one_job_wakes_one_poll(hall: Hall) -> None:
    for number in range(10):
        await hall.add_pod(f"p{number}")
    polls = [hall.ask(f"p{number}", wait_s=10) for number in range(10)]
    await hall.later(1)
    asked = hall.wounds.calls.count("claim")
    await hall.queue(1)
    answers = [await poll.answer() for poll in polls]

    assert isinstance(answers[0], Handed), "the first in line is served first"
    assert answers[1:] == [NothingYet()] * 9
    assert hall.wounds.calls.count("claim") - asked <= 2


@story()
async def test_a_poll_without_a_wait_takes_what_is_there(hall: Hall) -> None:
    await hall.add_pod()
    assert await hall.poll(wait_s=0) == NothingYet()
    await hall.queue(1)
    await hall.later(0.1)

    assert isinstance(await hall.poll(wait_s=0), Handed)


# --- Who is not served ------------------------------------------------------------------------------------------------


@story()
async def test_a_runner_that_is_asked_to_drain_while_it_waits_goes_home_at_once(hall: Hall) -> None:
    await hall.add_pod()
    asking = hall.ask()
    await hall.later(2)
    await hall.label("a", drain="true")
    before = hall.clock.monotonic()

    answer = await asking.answer()

    assert isinstance(answer, Leave)
    assert hall.clock.monotonic() - before < 1


@story()
async def test_a_marked_stale_runner_goes_home_and_leaves_the_job_to_another(hall: Hall) -> None:
    await hall.add_pod("old", drain_eligible="h2")
    await hall.add_pod("new", template="h2")
    await hall.pool_status(templateHash="h2")
    await hall.later(0.2)
    await hall.queue(1)

    assert isinstance(await hall.poll("old"), Leave)
    assert isinstance(await hall.poll("new"), Handed)


@story()
async def test_a_pool_with_the_labels_of_another_gets_no_jobs_and_keeps_its_runners(
    hall: Hall,
) -> None:
    await hall.add_pod()
    conflict = {"type": "LabelsConflict", "status": "True", "reason": "SameLabels", "message": "x"}
    await hall.pool_status(conditions=[{**conflict, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    await hall.later(0.2)
    await hall.queue(1)

    assert await hall.poll(wait_s=5) == NothingYet()
    assert hall.state() is JobState.QUEUED


@story()
async def test_a_pod_that_is_gone_is_nobody(hall: Hall) -> None:
    await hall.add_pod()
    await hall.delete("a")
    await hall.later(1)

    answer = await hall.poll()

    assert isinstance(answer, Refused)
    assert answer.status == 401


@story()
async def test_a_stopping_server_ends_its_waiting_polls_and_takes_no_more(hall: Hall) -> None:
    await hall.add_pod()
    asking = hall.ask()
    await hall.later(1)
    hall.desk.close()

    assert isinstance(await asking.answer(), ComeBack)
    assert isinstance(await hall.poll(), ComeBack)


@story(replace(SETTINGS, polls=PollSettings(polls_max=1)))
async def test_more_polls_than_there_is_room_for_are_asked_to_come_again(hall: Hall) -> None:
    await hall.add_pod()
    await hall.add_pod("b")
    hall.ask()
    await hall.later(1)

    answer = await hall.poll("b")

    assert isinstance(answer, ComeBack)
    assert answer.status == 429


# --- One Pod, one poll ------------------------------------------------------------------------------------------------


@story()
async def test_an_older_poll_of_the_same_pod_ends_with_nothing(hall: Hall) -> None:
    await hall.add_pod()
    older = hall.ask()
    await hall.later(1)
    newer = hall.ask()

    assert await older.answer() == NothingYet()
    await hall.queue(1)
    assert isinstance(await newer.answer(), Handed)
    assert hall.job().attempts == 1


@story()
async def test_two_polls_at_once_with_two_jobs_are_handed_one(hall: Hall) -> None:
    await hall.add_pod()
    await hall.queue(1, 2)
    older, newer = hall.ask(wait_s=5), hall.ask(wait_s=5)
    answers = [await older.answer(), await newer.answer()]

    assert [type(answer) for answer in answers] == [NothingYet, Handed]
    assert len(hall.tables.claims) == 1


@story()
async def test_a_newer_poll_during_the_attempt_of_an_older_is_handed_the_job(hall: Hall) -> None:
    await hall.add_pod()
    await hall.queue(1)
    hall.forge.takes_s = 3.0
    older = hall.ask()
    await hall.later(1)
    newer = hall.ask()

    assert await older.answer() == NothingYet()
    assert isinstance(await newer.answer(), Handed)
    assert len(hall.forge.runners) == 1
    assert len(hall.tables.claims) == 1
    await hall.check()


# --- Asking again -----------------------------------------------------------------------------------------------------


@story()
async def test_a_pod_whose_answer_was_lost_is_handed_the_same_job_under_a_new_runner(
    hall: Hall,
) -> None:
    await hall.add_pod()
    await hall.queue(1, 2)
    first = await hall.poll()
    await hall.later(30)
    second = await hall.poll()
    await hall.later(1)

    assert isinstance(first, Handed)
    assert isinstance(second, Handed)
    assert second.job.spec.id == first.job.spec.id
    assert second.runner_name != first.runner_name
    assert list(hall.forge.runners) == [second.runner_name]
    assert list(hall.tables.registrations) == [second.runner_name]
    assert hall.metric("remuda_dispatch_seconds_count", outcome="again") == 1
    assert hall.state(2) is JobState.QUEUED
    await hall.check()


@story()
async def test_a_pod_that_asks_again_before_our_view_knows_its_stamp_is_handed_its_job_again(
    hall: Hall,
) -> None:
    await hall.add_pod()
    await hall.queue(1)
    hall.tap.frozen = "pods"
    assert isinstance(await hall.poll(), Handed)

    assert isinstance(await hall.poll(wait_s=2), Handed)
    hall.tap.frozen = ""


@story()
async def test_a_pod_whose_job_runs_is_neither_given_another_nor_sent_home(hall: Hall) -> None:
    await hall.add_pod()
    await hall.queue(1, 2)
    first = await hall.poll()
    assert isinstance(first, Handed)
    await hall.executes(1, first.runner_name)
    await hall.label("a", drain="true")
    await hall.later(1)

    assert await hall.poll() == AlreadyDelivered("forge/1")


@story()
async def test_a_pod_that_asks_after_the_window_goes_home(hall: Hall) -> None:
    await hall.add_pod()
    await hall.queue(1)
    assert isinstance(await hall.poll(), Handed)
    await hall.later(121)

    assert isinstance(await hall.poll(), Leave)
    assert len(hall.forge.runners) == 1


@story()
async def test_a_pod_that_has_had_its_job_goes_home(hall: Hall) -> None:
    await hall.add_pod()
    await hall.queue(1, 2)
    first = await hall.poll()
    assert isinstance(first, Handed)
    await hall.executes(1, first.runner_name)
    hall.tables.claims.clear()

    assert isinstance(await hall.poll(), Leave)
    assert hall.state(2) is JobState.QUEUED


@story()
async def test_a_leftover_stamp_of_an_older_claim_does_not_keep_a_runner_from_work(
    hall: Hall,
) -> None:
    await hall.add_pod()
    await hall.queue(1)
    first = await hall.poll()
    assert isinstance(first, Handed)
    hall.tables.claims.clear()
    hall.tables.sessions.clear()
    await hall.queue(2)

    assert isinstance(await hall.poll(), Handed)


@story()
async def test_a_pod_with_an_owner_that_no_claim_put_there_is_not_served(hall: Hall) -> None:
    await hall.add_pod(owner="somebody")
    await hall.queue(1)

    assert await hall.poll(wait_s=5) == NothingYet()
    assert hall.job().attempts == 0


# --- A forge that fails -----------------------------------------------------------------------------------------------


def refused(scope: Scope) -> ForgeRefused:
    return ForgeRefused("No runner", why="403", fix="Ask a person", scope=scope)


@story()
async def test_a_refused_job_is_held_and_the_next_one_is_handed_over_by_the_same_poll(
    hall: Hall,
) -> None:
    await hall.add_pod()
    await hall.queue(1, 2)
    hall.forge.fails = [refused(Scope.JOB)]

    answer = await hall.poll()

    assert isinstance(answer, Handed)
    assert answer.job.spec.id == "forge/2"
    held = hall.job(1).hold_until
    assert held is not None
    assert (held - hall.clock.now()).total_seconds() > 10
    assert hall.metric("remuda_jit_mint_seconds_count", outcome="refused") == 1


@story()
async def test_a_refused_repository_is_passed_over(hall: Hall) -> None:
    await hall.add_pod()
    await hall.queue(1, 2)
    await hall.queue(3, repository="acme/other")
    hall.forge.fails = [refused(Scope.REPOSITORY)]

    answer = await hall.poll()

    assert isinstance(answer, Handed)
    assert answer.job.spec.id == "forge/3"
    assert hall.job(2).attempts == 0


@story()
async def test_a_throttled_tenant_is_left_alone_by_every_poll_until_its_time_has_come(
    hall: Hall,
) -> None:
    await hall.add_pod()
    await hall.add_pod("b")
    await hall.queue(1, 2)
    busy = ForgeThrottled("No runner", why="429", fix="Wait", retry_after_s=20)
    hall.forge.fails = [busy]
    first = hall.ask(wait_s=15)
    await hall.later(1)
    second = hall.ask("b", wait_s=15)

    assert await first.answer() == NothingYet()
    assert await second.answer() == NothingYet()
    assert hall.forge.asked == 1
    assert isinstance(await hall.poll(wait_s=15), Handed)


@story()
async def test_an_outage_of_the_forge_does_not_stamp_the_whole_warm_pool(hall: Hall) -> None:
    hall.forge.always = lambda _: down()
    for number in range(20):
        await hall.add_pod(f"p{number}")
    await hall.queue(*range(1, 41))
    polls = [hall.ask(f"p{number}", wait_s=30) for number in range(20)]
    for poll in polls:
        assert await poll.answer() == NothingYet()

    stamps = [said for said in hall.tap.writes if said.startswith("PATCH")]
    assert len(stamps) <= 50, "those that were under way when it began, then one at a time"
    assert hall.forge.asked <= 25
    for number in range(20):
        assert not await hall.is_stamped(f"p{number}")
    hall.forge.always = lambda _: None
    answers = [hall.ask(f"p{number}", wait_s=300) for number in range(20)]
    for asking in answers:
        assert isinstance(await asking.answer(), Handed)
    await hall.check()


@story()
async def test_a_job_that_fails_again_and_again_is_held_for_ever_longer(hall: Hall) -> None:
    await hall.add_pod()
    await hall.queue(1)
    hall.forge.always = lambda _: refused(Scope.JOB)
    for _ in range(20):
        await hall.poll(wait_s=30)

    assert hall.job().attempts <= 7


@story()
async def test_a_job_that_one_poll_may_not_have_goes_to_the_next_in_line(hall: Hall) -> None:
    """The first in line has been refused for the tenant's repository: it must not swallow every turn."""
    await hall.add_pod()
    await hall.add_pod("b")
    await hall.queue(1)
    hall.forge.fails = [refused(Scope.REPOSITORY)]
    first = hall.ask(wait_s=30)
    await hall.later(0.5)
    second = hall.ask("b", wait_s=30)
    await hall.later(0.5)
    await hall.queue(2)

    answer = await second.answer()

    assert isinstance(answer, Handed)
    assert answer.job.spec.id == "forge/2"
    first.gone.set()


@story()
async def test_a_job_of_a_forge_that_is_not_configured_is_held_and_keeps_nobody_from_work(
    hall: Hall,
) -> None:
    await hall.add_pod()
    await hall.queue(1, kind=Kind.LOCAL)
    await hall.queue(2)

    answer = await hall.poll()

    assert isinstance(answer, Handed)
    assert answer.job.spec.id == "forge/2"
    assert hall.job(1).hold_until is not None
    assert hall.state(1) is JobState.QUEUED


@story()
async def test_a_fault_of_ours_outside_of_an_attempt_ends_its_poll_and_not_the_desk(
    hall: Hall,
) -> None:
    await hall.add_pod()
    await hall.queue(1)
    hall.tables.limits.clear()
    claim, hall.store.claim = hall.store.claim, None  # type: ignore[method-assign, assignment]

    assert isinstance(await hall.poll(), ComeBack)
    hall.store.claim = claim  # type: ignore[method-assign]
    await hall.store.set_limits("acme", Os.LINUX, Size(8, 16384), by="test")
    assert isinstance(await hall.poll(), Handed)


# --- An API server that fails -----------------------------------------------------------------------------------------


@story()
async def test_without_an_api_server_nobody_is_given_a_job_and_nothing_is_asked_in_a_storm(
    hall: Hall,
) -> None:
    await hall.add_pod()
    await hall.queue(1)
    hall.tap.before = _refuse
    assert await hall.poll(wait_s=25) == NothingYet()
    assert hall.job().attempts <= 12
    hall.tap.before = None

    assert isinstance(await hall.poll(wait_s=65), Handed)


async def _refuse(said: str) -> None:
    if "/pods/" in said:
        raise Unavailable("Not sent", why="the wire is cut", fix="Mend it")
