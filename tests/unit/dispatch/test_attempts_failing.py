"""
Every call that fails while a job is handed over: to the database, to the API server, to the forge.

Each job is handed over once, or is back in its old place; each Pod serves, or carries no stamp; each registration that
nobody uses is gone; each tenant has its room back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.answers import Handed, NothingYet
from remuda.dispatch.attempt import Step, surely
from remuda.model.job import JobState
from remuda.ports.forge import ForgeRefused, ForgeThrottled, Scope
from remuda.sim.loop import run
from tests.support.forges import down
from tests.unit.dispatch.attempts import PATCH, STEPS, Fault, begin, calm, hand_over_later, settled
from tests.unit.dispatch.hall import in_hall
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from tests.unit.dispatch.hall import Hall

# --- Calls that fail --------------------------------------------------------------------------------------------------

CALLS = ["claim", "mark_running"]


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
            if step is Step.MINTED:
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

        hall.at = Fault(hall, Step.MINTED, go).at
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
@pytest.mark.parametrize("call", ["note", "deliver_again"])
def test_a_second_delivery_that_is_not_answered_is_tried_again(call: str, done: bool) -> None:  # noqa: FBT001 - a case
    async def play(hall: Hall) -> None:
        assert isinstance(await (await begin(hall)).answer(), Handed)
        hall.wounds.fails, hall.wounds.done_first = {call: 1}, done
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
