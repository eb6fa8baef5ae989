"""
Everything that can go wrong at every step of handing a job over.

Each job is handed over once, or is back in its old place; each Pod serves, or carries no stamp; each registration that
nobody uses is gone; each tenant has its room back.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.answers import ComeBack, Handed, Leave, NothingYet
from remuda.dispatch.attempt import Step, surely
from remuda.model.job import JobState, Size
from remuda.ports.forge import ForgeRefused, ForgeThrottled, Scope
from remuda.ports.jobs import JobEnd, PodEnd, Release
from remuda.sim.loop import run
from tests.support.forges import down
from tests.unit.dispatch.hall import in_hall
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.dispatch.answers import Answer
    from tests.unit.dispatch.hall import Asking, Hall

STEPS: list[Step] = [step for step in Step if step is not Step.ANSWERED]
PATCH = r"^PATCH .*/pods/"


@dataclass
class Fault:
    """Something that happens once, when an attempt comes to a step."""

    hall: Hall
    step: Step
    what: Callable[[], Awaitable[None]]
    happened: bool = False

    async def at(self, step: Step) -> None:
        if step is self.step and not self.happened:
            self.happened = True
            await self.what()


async def calm(hall: Hall) -> None:
    """Let everything that was begun come to its end, with nothing in its way."""
    hall.at = None
    await hall.later(40)


async def settled(hall: Hall, answer: Answer | None) -> None:
    """Check that the job was handed over, or that there is no trace of it."""
    if isinstance(answer, Handed):
        (live,) = hall.tables.claims.values()
        assert hall.state() is JobState.RUNNING
        assert live.delivered_at is not None
        assert live.runner_name == answer.runner_name
        assert await hall.is_stamped()
        assert list(hall.forge.runners) == [answer.runner_name]
        assert list(hall.tables.registrations) == [answer.runner_name]
        await hall.check()
    else:
        await hall.nothing_is_left()
    assert hall.job().spec.queued_at == hall.queued_at


async def hand_over_later(hall: Hall) -> None:
    """Check that what was taken back is handed over to whoever asks next: to the same Pod."""
    answer = await hall.poll(wait_s=120)
    assert isinstance(answer, Handed)
    await settled(hall, answer)


async def begin(hall: Hall) -> Asking:
    await hall.add_pod()
    await hall.queue(1)
    hall.queued_at = hall.job().spec.queued_at
    return hall.ask(wait_s=30)


# --- At each step -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_client_that_goes_away_at_any_step_gets_nothing_and_leaves_no_trace(step: Step) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)

        async def go() -> None:
            asking.gone.set()
            await hall.later(0)

        hall.at = Fault(hall, step, go).at
        before = hall.clock.monotonic()
        assert await asking.answer() == NothingYet()
        assert hall.clock.monotonic() - before < 1, "it ends at once"
        await hall.later(0.5)
        await hall.nothing_is_left()
        assert hall.job().hold_until is None
        assert hall.polled("client_gone") == 1
        asked = STEPS.index(step) >= STEPS.index(Step.MINTED)
        assert hall.forge.asked == asked, "nothing more is done for who is gone"
        await hand_over_later(hall)

    in_hall(play)


@pytest.mark.parametrize("step", STEPS)
def test_a_poll_that_is_cancelled_at_any_step_leaves_no_trace(step: Step) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)

        async def cancel() -> None:
            asking.task.cancel()
            await hall.later(0)

        hall.at = Fault(hall, step, cancel).at
        with contextlib.suppress(asyncio.CancelledError):
            await asking.answer()
        await hall.later(0.5)
        await hall.nothing_is_left()
        await hand_over_later(hall)

    in_hall(play)


@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_stops_finishes_what_is_past_the_stamp_and_hands_back_the_rest(
    step: Step,
) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)

        async def stop() -> None:
            assert hall.running is not None
            hall.desk.close()
            hall.running.cancel()
            await hall.later(0)

        hall.at = Fault(hall, step, stop).at
        answer = await asking.answer()
        await calm(hall)
        assert hall.running is not None
        assert hall.running.cancelled()
        assert isinstance(answer, ComeBack if step is Step.CLAIMED else Handed)
        await settled(hall, answer)

    in_hall(play)


@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_is_cancelled_twice_undoes_what_it_has_begun(step: Step) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)

        async def stop_twice() -> None:
            assert hall.running is not None
            hall.running.cancel()
            await hall.later(0.001)
            hall.running.cancel()
            await hall.later(60)

        hall.at = Fault(hall, step, stop_twice).at
        answer = await asking.answer()
        await calm(hall)
        assert isinstance(answer, ComeBack)
        await hall.nothing_is_left()

    in_hall(play)


@pytest.mark.parametrize("step", STEPS)
def test_a_fault_of_ours_at_any_step_is_undone_and_the_job_held(step: Step) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)

        async def break_down() -> None:
            raise ZeroDivisionError

        hall.at = Fault(hall, step, break_down).at
        await hall.later(1)
        await hall.nothing_is_left()
        assert hall.job().hold_until is not None
        answer = await asking.answer()
        assert isinstance(answer, Handed), "once its time has come, by the same poll"
        await settled(hall, answer)

    in_hall(play)


@pytest.mark.parametrize("step", STEPS)
def test_an_attempt_that_hangs_at_any_step_is_undone_when_its_time_is_up(step: Step) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)
        hall.at = Fault(hall, step, lambda: hall.later(3600)).at
        await hall.later(21)
        if not asking.task.done():
            hall.at = None
        answer = await asking.answer()
        await calm(hall)
        await settled(hall, answer)
        if not isinstance(answer, Handed):
            await hand_over_later(hall)

    in_hall(play)


@pytest.mark.parametrize("step", STEPS)
def test_a_pod_that_is_deleted_at_any_step_keeps_no_job(step: Step) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)
        hall.at = Fault(hall, step, lambda: hall.delete("a")).at
        answer = await asking.answer()
        await hall.later(1)
        if step is Step.CLAIMED:
            assert isinstance(answer, Leave)
            assert hall.state() is JobState.QUEUED
            assert hall.tables.claims == {}
            assert hall.forge.runners == {}
        else:
            # The stamp was there first: the delete is somebody's who must not have. Workers find the dead Pod.
            assert isinstance(answer, Handed)
        await hall.check()

    in_hall(play)


def test_a_pod_that_is_asked_to_drain_after_the_claim_takes_nothing() -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)
        hall.at = Fault(hall, Step.CLAIMED, lambda: hall.label("a", drain="true")).at

        assert isinstance(await asking.answer(), Leave)
        await hall.later(0.5)
        await hall.nothing_is_left()

    in_hall(play)


BEFORE_RUNNING = [step for step in STEPS if step is not Step.RUNNING]


@pytest.mark.parametrize("step", BEFORE_RUNNING)
def test_a_claim_that_a_worker_released_meanwhile_hands_nothing_out(step: Step) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)

        async def release() -> None:
            (live,) = hall.tables.claims.values()
            stale = Release(by="worker", why="too old", undelivered=True, runner_name="")
            await hall.store.release(live.claim, stale)
            hall.tables.jobs.pop("forge/1")

        hall.at = Fault(hall, step, release).at
        assert await asking.answer() == NothingYet()
        await hall.later(1)
        assert not await hall.is_stamped()
        assert hall.forge.runners == {}
        assert hall.tables.registrations == {}
        assert hall.tables.claims == {}

    in_hall(play)


@pytest.mark.parametrize("step", BEFORE_RUNNING)
def test_a_pod_that_is_reported_stopped_meanwhile_hands_nothing_out(step: Step) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)

        async def stop() -> None:
            end = PodEnd(pod="a", ended_at=hall.clock.now(), by="operator", reason="gone")
            await hall.store.stop_pod(end)
            await hall.queue_gone()

        hall.at = Fault(hall, step, stop).at
        assert await asking.answer() == NothingYet()
        await hall.later(1)
        assert not await hall.is_stamped()
        assert hall.forge.runners == {}
        assert hall.tables.claims == {}

    in_hall(play)


@pytest.mark.parametrize("step", STEPS)
def test_a_job_that_is_cancelled_meanwhile_takes_no_room_and_is_not_requeued(step: Step) -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)

        async def cancel() -> None:
            end = JobEnd(
                job_id="forge/1",
                tenant="acme",
                conclusion="cancelled",
                ended_at=hall.clock.now(),
                by="forge",
            )
            await hall.store.complete(end)

        hall.at = Fault(hall, step, cancel).at
        answer = await asking.answer()
        await hall.later(1)
        assert hall.state() is JobState.CANCELLED
        if step is Step.RUNNING:
            assert isinstance(answer, Handed), "its runner may be given a sibling"
        else:
            assert answer == NothingYet()
            assert hall.tables.claims == {}
            assert not await hall.is_stamped()
            assert hall.forge.runners == {}
            assert all(s.used == Size(0, 0) for s in hall.tables.limits.values())

    in_hall(play)


# --- Between any two moments ------------------------------------------------------------------------------------------

MOMENTS_MS = [round(0.5 * half, 1) for half in range(1, 29)]
"""Each call of the store takes 1 ms before and 1 ms after it is carried out: these fall before, between and after."""


@pytest.mark.parametrize("how", ["gone", "cancelled", "superseded"])
def test_whenever_the_client_goes_away_the_job_is_handed_over_or_back(how: str) -> None:
    outcomes = set()
    for moment_ms in MOMENTS_MS:

        async def play(hall: Hall, moment_ms: float = moment_ms) -> None:
            hall.forge.takes_s = 0.003
            asking = await begin(hall)
            await hall.later(moment_ms / 1000)
            ended = asking.task.done()
            if how == "gone":
                asking.gone.set()
            elif how == "cancelled":
                asking.task.cancel()
            newer = hall.ask(wait_s=30) if how == "superseded" else None
            try:
                answer: Answer | None = await asking.answer()
            except asyncio.CancelledError:
                answer = None
            outcomes.add(type(answer))
            assert isinstance(answer, Handed) is ended
            if newer is not None:
                answer = await newer.answer()
                assert isinstance(answer, Handed)
            await hall.later(1)
            await settled(hall, answer)

        in_hall(play)
    assert Handed in outcomes, "the last moments come after the answer"
    assert len(outcomes) == 2


def test_whenever_the_server_stops_the_job_is_handed_over_or_back() -> None:
    outcomes = set()
    for moment_ms in MOMENTS_MS:

        async def play(hall: Hall, moment_ms: float = moment_ms) -> None:
            hall.forge.takes_s = 0.003
            asking = await begin(hall)
            await hall.later(moment_ms / 1000)
            assert hall.running is not None
            hall.running.cancel()
            answer = await asking.answer()
            outcomes.add(type(answer))
            await hall.later(60)
            await settled(hall, answer)

        in_hall(play)
    assert outcomes == {ComeBack, Handed}


# --- Calls that fail --------------------------------------------------------------------------------------------------

CALLS = ["claim", "note", "mark_running"]


@pytest.mark.parametrize("done", [False, True], ids=["not carried out", "carried out"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_to_the_database_that_is_not_answered_is_undone(call: str, done: bool) -> None:  # noqa: FBT001 - a case
    async def play(hall: Hall) -> None:
        hall.wounds.fails, hall.wounds.done_first = {call: 1}, done
        asking = await begin(hall)
        answer = await asking.answer()
        await hall.later(5)
        await settled(hall, answer)
        if not isinstance(answer, Handed):
            await hand_over_later(hall)

    in_hall(play)


def test_a_client_that_goes_while_nobody_knows_whether_its_job_runs_leaves_no_trace() -> None:
    async def play(hall: Hall) -> None:
        hall.wounds.fails, hall.wounds.done_first = {"mark_running": 1}, True
        asking = await begin(hall)

        async def go() -> None:
            asking.gone.set()
            hall.at = None

        async def at(step: Step) -> None:
            if step is Step.NUMBERED:
                hall.group.create_task(go_soon())

        async def go_soon() -> None:
            await hall.later(0.0015)  # it is under way
            await go()

        hall.at = at
        await asking.answer()
        await hall.later(2)
        await hall.nothing_is_left()

    in_hall(play)


def test_what_must_be_done_is_done_however_often_we_are_cancelled() -> None:
    async def main() -> None:
        done: list[str] = []

        async def work() -> None:
            await asyncio.sleep(1)
            done.append("done")

        async with asyncio.TaskGroup() as group:
            task = group.create_task(surely(work, within_s=10))
            for _ in range(2):
                await asyncio.sleep(0.5)
                task.cancel()
        assert task.cancelled()
        assert done == ["done"]

    run(main)


def test_what_must_be_done_is_given_up_when_its_time_is_up() -> None:
    async def main() -> None:
        await surely(lambda: asyncio.sleep(3600), within_s=10)
        assert asyncio.get_running_loop().time() == 10

    run(main)


@pytest.mark.parametrize("done", [False, True], ids=["not carried out", "carried out"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_release_that_is_not_answered_is_tried_until_it_is(times: int, done: bool) -> None:  # noqa: FBT001 - a case
    async def play(hall: Hall) -> None:
        hall.wounds.fails, hall.wounds.done_first = {"release": times}, done
        hall.forge.fails = ["lost"]
        asking = await begin(hall)
        answer = await asking.answer()
        await hall.later(5)
        await settled(hall, answer)

    in_hall(play)


def test_a_release_that_is_never_answered_leaves_claim_and_stamp_to_the_workers() -> None:
    async def play(hall: Hall) -> None:
        hall.wounds.fails = {"release": 10_000}
        hall.forge.fails = [ForgeRefused("No", why="403", fix="Ask", scope=Scope.JOB)]
        asking = await begin(hall)
        await hall.later(25)
        (live,) = hall.tables.claims.values()
        assert live.delivered_at is None
        assert await hall.is_stamped(), "nobody else is told that this Pod is idle"
        asking.gone.set()
        await asking.answer()

    in_hall(play)


MINTS: dict[str, Exception | str] = {
    "fails": down(),
    "is not answered": "lost",
    "hangs": "hangs",
    "is refused for the job": ForgeRefused("No", why="409", fix="Ask", scope=Scope.JOB),
    "is refused for the repository": ForgeRefused(
        "No", why="404", fix="Ask", scope=Scope.REPOSITORY
    ),
    "is refused for the tenant": ForgeRefused("No", why="403", fix="Ask", scope=Scope.TENANT),
    "is throttled": ForgeThrottled("No", why="429", fix="Wait", retry_after_s=30),
}


@pytest.mark.parametrize("how", MINTS)
def test_a_mint_that(how: str) -> None:
    """… leaves the Pod in the pool, the job in its place and held for a while, and no registration behind."""

    async def play(hall: Hall) -> None:
        hall.forge.fails = [MINTS[how]]
        asking = await begin(hall)
        await hall.later(20.5 if how == "hangs" else 1)
        if how in {"fails", "hangs"}:
            # Nobody knows whether it was done: what was written down before stays for the worker.
            assert len(hall.tables.registrations) == 1
            hall.tables.registrations.clear()
        await hall.nothing_is_left()
        held_until = hall.job().hold_until
        assert held_until is not None
        assert held_until > hall.clock.now()
        asking.gone.set()
        await asking.answer()
        await hand_over_later(hall)

    in_hall(play)


@pytest.mark.parametrize("how", ["lost", "dropped", "throttled", "refused"])
@pytest.mark.parametrize("times", [1, 2, 3, 9])
def test_a_stamp_whose_answer_does_not_come_is_read_back(how: str, times: int) -> None:
    async def play(hall: Hall) -> None:
        hall.tap.hurts = [Hurt(PATCH, how, times=times)]
        asking = await begin(hall)
        answer = await asking.answer()
        hall.tap.hurts = []
        await calm(hall)
        if how == "lost" or times < 9:
            assert isinstance(answer, Handed)
        if isinstance(answer, Handed):
            await settled(hall, answer)

    in_hall(play)


@pytest.mark.parametrize("how", ["lost", "dropped"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_stamp_that_is_not_taken_off_at_once_is_taken_off(how: str, times: int) -> None:
    async def play(hall: Hall) -> None:
        hall.forge.fails = [ForgeRefused("No", why="403", fix="Ask", scope=Scope.JOB)]
        asking = await begin(hall)

        async def cut() -> None:
            hall.tap.hurts = [Hurt(PATCH, how, times=times)]

        hall.at = Fault(hall, Step.NOTED, cut).at
        await hall.later(2)
        await hall.nothing_is_left()
        asking.gone.set()
        await asking.answer()

    in_hall(play)


def test_a_pod_that_changes_under_the_stamp_is_stamped_in_its_new_version() -> None:
    async def play(hall: Hall) -> None:
        asking = await begin(hall)
        hall.tap.frozen = "pods"
        hall.at = Fault(hall, Step.CLAIMED, lambda: hall.label("a", colour="blue")).at

        answer = await asking.answer()
        hall.tap.frozen = ""
        assert isinstance(answer, Handed)
        await settled(hall, answer)

    in_hall(play)


def test_a_removal_that_fails_is_left_to_the_worker() -> None:
    async def play(hall: Hall) -> None:
        hall.forge.removals_fail = True
        asking = await begin(hall)

        async def go() -> None:
            asking.gone.set()

        hall.at = Fault(hall, Step.NUMBERED, go).at
        await asking.answer()
        await hall.later(2)
        assert hall.state() is JobState.QUEUED
        assert not await hall.is_stamped()
        (noted,) = hall.tables.registrations.values()
        assert noted.number == 1

    in_hall(play)


# --- Handing over again -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_client_that_goes_away_from_a_second_delivery_keeps_its_claim_and_one_runner(
    step: Step,
) -> None:
    async def play(hall: Hall) -> None:
        first = await (await begin(hall)).answer()
        assert isinstance(first, Handed)
        asking = hall.ask()

        async def go() -> None:
            asking.gone.set()
            await hall.later(0)

        hall.at = Fault(hall, step, go).at
        assert await asking.answer() == NothingYet()
        await hall.later(1)
        (live,) = hall.tables.claims.values()
        assert live.delivered_at is not None
        assert list(hall.forge.runners) == [live.runner_name]
        assert list(hall.tables.registrations) == [live.runner_name]
        assert await hall.is_stamped()
        again = await hall.poll()
        await hall.later(1)
        await settled(hall, again)

    in_hall(play)


@pytest.mark.parametrize("done", [False, True], ids=["not carried out", "carried out"])
def test_a_second_delivery_that_is_not_answered_is_tried_again(done: bool) -> None:  # noqa: FBT001 - a case
    async def play(hall: Hall) -> None:
        assert isinstance(await (await begin(hall)).answer(), Handed)
        hall.wounds.fails, hall.wounds.done_first = {"deliver_again": 1}, done
        again = await hall.poll(wait_s=30)
        await hall.later(1)
        assert isinstance(again, Handed)
        (live,) = hall.tables.claims.values()
        assert live.runner_name == again.runner_name
        await hall.check()

    in_hall(play)


def test_a_second_delivery_of_a_job_that_begins_meanwhile_is_taken_back() -> None:
    async def play(hall: Hall) -> None:
        first = await (await begin(hall)).answer()
        assert isinstance(first, Handed)
        hall.at = Fault(hall, Step.MINTED, lambda: hall.executes(1, first.runner_name)).at
        answer = await hall.poll()
        await hall.later(1)
        assert type(answer).__name__ == "AlreadyDelivered"
        assert list(hall.forge.runners) == [first.runner_name]

    in_hall(play)
