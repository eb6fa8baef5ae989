"""
Everything that can go wrong at every step of handing a job over.

Each job is handed over once, or is back in its old place; each Pod serves, or carries no stamp; each registration that
nobody uses is gone; each tenant has its room back.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.answers import ComeBack, Handed, Leave, NothingYet
from remuda.dispatch.attempt import Step
from remuda.model.job import JobState, Size
from remuda.ports.jobs import JobEnd, PodEnd, Release
from tests.unit.dispatch.attempts import STEPS, Fault, begin, calm, hand_over_later, settled
from tests.unit.dispatch.hall import in_hall

if TYPE_CHECKING:
    from remuda.dispatch.answers import Answer
    from tests.unit.dispatch.hall import Hall

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
