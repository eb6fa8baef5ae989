"""The intake of a forge that cannot reach us, on virtual time: what is found, what it costs, and when it slows down."""

from __future__ import annotations

from dataclasses import replace

from structlog.testing import capture_logs

from remuda.dispatch.settings import PollingSettings
from remuda.model.job import JobState
from remuda.ports.forge import Action, ForgeJob, ForgeState, ForgeUnavailable, Spent
from tests.unit.dispatch.mailroom import RUNNER, Mailroom, news, running, story

DOWN = ForgeUnavailable("No answer", why="it is down", fix="Wait")
POLLING = PollingSettings()


def _polls(room: Mailroom) -> None:
    """Let this room hear of jobs by asking alone."""
    intake = replace(room.settings.intake, polling=POLLING, messages=False)
    room.settings = replace(room.settings, intake=intake)


async def _polling(room: Mailroom) -> None:
    await room.new_sweeps().loops()["sweep"]()


@story()
async def test_without_messages_none_are_asked_for_again(room: Mailroom) -> None:
    assert set(room.new_sweeps().loops()) == {"sweep", "redelivery"}
    _polls(room)
    assert set(room.new_sweeps().loops()) == {"sweep"}


@story()
async def test_a_queued_job_is_found_within_seconds_and_is_no_recovery(room: Mailroom) -> None:
    _polls(room)
    async with running(_polling(room)):
        await room.clock.sleep(60)
        room.hub.queued.append(news())
        await room.clock.sleep(POLLING.shortest_s * 1.3)
        assert await room.state() is JobState.QUEUED
    assert room.counted("recoveries_total", kind="queued_found") == 0


@story()
async def test_a_job_is_followed_to_its_end_by_lists_alone(room: Mailroom) -> None:
    _polls(room)
    room.hub.queued = [news()]
    async with running(_polling(room)):
        await room.clock.sleep(10)
        await room.hand_over()
        room.hub.queued = [news(Action.IN_PROGRESS)]
        await room.clock.sleep(10)
        job = await room.job()
        assert job is not None
        assert (job.state, job.runner_name) == (JobState.RUNNING, RUNNER)
        assert room.noted() == [], "it was used, so the forge removes it"
        room.hub.queued = [news(Action.COMPLETED)]
        await room.clock.sleep(10)
        assert await room.state() is JobState.COMPLETED
    assert room.hub.looked_up == [], "the lists told it all"


@story()
async def test_a_job_that_was_cancelled_while_it_waited_is_asked_about_and_leaves_the_queue(
    room: Mailroom,
) -> None:
    _polls(room)
    room.hub.queued = [news()]
    async with running(_polling(room)):
        await room.clock.sleep(10)
        room.hub.queued = []
        room.hub.jobs["forge/1"] = ForgeJob(state=ForgeState.COMPLETED, conclusion="cancelled")
        await room.clock.sleep(10)
        assert await room.state() is JobState.CANCELLED
        await room.clock.sleep(600)
    assert room.hub.looked_up == ["forge/1"]


@story()
async def test_a_job_that_lags_behind_on_the_lists_is_left_alone_and_asked_about_ever_less(
    room: Mailroom,
) -> None:
    _polls(room)
    room.hub.queued = [news()]
    async with running(_polling(room)):
        await room.clock.sleep(10)
        room.hub.queued = []
        await room.clock.sleep(3600)
    assert await room.state() is JobState.QUEUED
    assert 10 <= len(room.hub.looked_up) <= 20


@story()
async def test_what_a_list_repeats_is_told_once(room: Mailroom) -> None:
    _polls(room)
    room.hub.queued = [news(Action.IN_PROGRESS, runner_name="somebody-else")]
    before = len(room.hub.sweeps)
    with capture_logs() as logged:
        async with running(_polling(room)):
            await room.clock.sleep(120)
    assert len(room.hub.sweeps) > before + 10
    assert [e["outcome"] for e in logged if e["event"] == "news"] == ["elsewhere"]


@story()
async def test_it_slows_down_for_the_rate_limit_and_says_so_once(room: Mailroom) -> None:
    _polls(room)
    dear = Spent(asked=40, charged=40, per_minute_max=450, left=4000, resets_s=3600.0)
    with capture_logs() as logged:
        async with running(_polling(room)):
            await room.clock.sleep(60)
            fast = len(room.hub.sweeps)
            room.hub.spent = (dear,)
            await room.clock.sleep(360)
            slow = len(room.hub.sweeps) - fast
            room.hub.spent = ()
            await room.clock.sleep(120)
    assert fast >= 9
    assert slow <= 15
    told = [e["event"] for e in logged if str(e["event"]).startswith("polling")]
    assert told == ["polling slows down", "polling at full pace again"]


@story()
async def test_a_forge_that_is_down_is_asked_less_often_and_then_as_before(room: Mailroom) -> None:
    _polls(room)
    async with running(_polling(room)):
        room.hub.sweep_fails = DOWN
        await room.clock.sleep(600)
        asked = len(room.hub.sweeps)
        room.hub.sweep_fails = None
        room.hub.queued.append(news())
        await room.clock.sleep(POLLING.longest_s * 1.5)
        assert await room.state() is JobState.QUEUED
        before = len(room.hub.sweeps)
        await room.clock.sleep(60)
        assert len(room.hub.sweeps) - before >= 9
    assert asked <= 12


@story()
async def test_few_repositories_are_looked_at_in_one_turn_so_that_turns_are_short(
    room: Mailroom,
) -> None:
    _polls(room)
    async with running(_polling(room)):
        await room.clock.sleep(10)
        for number in range(100):
            await room.apply(news(number=number, repository=f"acme/r{number}", queued_at=None))
        await room.clock.sleep(10)
    assert room.hub.rooms[0] == POLLING.repositories_min
    assert room.hub.rooms[-1] == room.settings.intake.sweep_repositories_max
    assert room.hub.sweeps[-1][0].startswith("acme/r")
