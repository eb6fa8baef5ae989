"""What news change: in any order, any number of times, from anybody."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.dispatch.announcements import OUTCOMES
from remuda.kube.runner_pool import Forks, OperatingSystem
from remuda.model.job import JobState, Os, Size
from remuda.ports.forge import (
    Action,
    Announcement,
    ForgeError,
    ForgeRefused,
    ForgeThrottled,
    ForgeUnavailable,
)
from remuda.sim.loop import run
from tests.support.jobs import check_books
from tests.unit.dispatch.mailroom import RUNNER, Mailroom, a_mailroom, a_pool, news, story

GUARDED = a_pool(forks=Forks.DENY)
DOWN = ForgeUnavailable("No answer", why="it is down", fix="Wait")
THROTTLED = ForgeThrottled("Too much", why="the limit", fix="Wait", retry_after_s=90.0)
REFUSED = ForgeRefused("No", why="403", fix="Install the App")


# --- Queued -----------------------------------------------------------------------------------------------------------


@story()
async def test_a_queued_job_waits_in_its_pool_with_the_size_of_its_runners(room: Mailroom) -> None:
    said = news(name="build", workflow="ci", branch="main", commit="abc", url="https://f/1")

    assert await room.apply(said) == "enqueued"

    job = await room.job()
    assert job is not None
    spec = job.spec
    assert (spec.pool, spec.label, spec.labels) == ("linux", "fast", ("self-hosted", "fast"))
    assert (spec.os, spec.size, spec.queued_at) == (Os.LINUX, Size(4, 8192), said.queued_at)
    assert (spec.name, spec.workflow, spec.branch) == ("build", "ci", "main")
    assert (spec.commit, spec.url, spec.run_id) == ("abc", "https://f/1", 9001)
    standing = await room.views.standings("acme")
    assert [s.limit for s in standing] == [room.settings.limits[Os.LINUX]]


@story()
async def test_a_job_that_waits_for_a_person_needs_no_runner(room: Mailroom) -> None:
    assert await room.apply(news(Action.WAITING)) == "waiting"
    assert await room.jobs() == []


@story()
async def test_a_limit_that_a_person_set_is_left_alone(room: Mailroom) -> None:
    await room.store.set_limits("acme", Os.LINUX, Size(2, 1024), by="a person")

    await room.apply(news())

    assert [s.limit for s in await room.views.standings("acme")] == [Size(2, 1024)]


@story(a_pool("mac", "xcode", os=OperatingSystem.DARWIN), a_pool())
async def test_each_os_has_its_own_limit(room: Mailroom) -> None:
    await room.apply(news(labels=("xcode",)))
    await room.apply(news(number=2))

    limits = {s.os: s.limit for s in await room.views.standings("acme")}
    assert limits == room.settings.limits


@story()
async def test_a_job_for_no_pool_is_not_kept_and_is_taken_once_there_is_one(room: Mailroom) -> None:
    said = news(labels=("gpu",))
    assert await room.apply(said) == "unknown_label"
    assert await room.jobs() == []

    room.pools.seen.append(a_pool("gpu", "gpu"))

    assert await room.apply(said) == "enqueued"


@story()
async def test_nothing_is_decided_before_the_pools_are_known(room: Mailroom) -> None:
    room.pools.synced.clear()
    room.pools.seen.clear()
    async with asyncio.TaskGroup() as group:
        applying = group.create_task(room.apply(news()))
        await room.clock.sleep(60)
        assert not applying.done()
        room.pools.seen.append(a_pool())
        room.pools.synced.set()

    assert applying.result() == "enqueued"


@pytest.mark.parametrize(
    ("queued_s", "place_s"),
    [
        pytest.param(-30, -30, id="the forge's time is its place"),
        pytest.param(3600, 0, id="a clock ahead of ours gives no place in the future"),
        pytest.param(-9 * 86400, -86400, id="days of waiting for approval do not overtake others"),
        pytest.param(None, 0, id="a forge that does not say"),
    ],
)
def test_the_place_in_the_queue(queued_s: float | None, place_s: float) -> None:
    async def main() -> None:
        room = a_mailroom()
        await room.apply(news(queued_at=None if queued_s is None else room.at(queued_s)))
        job = await room.job()
        assert job is not None
        assert job.spec.queued_at == room.at(place_s)

    run(main)


@story()
async def test_texts_of_strangers_are_made_fit_for_a_database(room: Mailroom) -> None:
    said = news(branch="a\0b\ud800c", name="n" * 10_000, labels=("fast",))

    assert await room.apply(said) == "enqueued"

    job = await room.job()
    assert job is not None
    assert job.spec.branch == "abc"
    assert len(job.spec.name) == 512


# --- Forks ------------------------------------------------------------------------------------------------------------


@story(GUARDED)
async def test_a_fork_is_kept_out_of_a_pool_that_denies_forks(room: Mailroom) -> None:
    room.hub.forks[9001] = True

    assert await room.apply(news()) == "fork_denied"
    assert await room.apply(news(number=2)) == "enqueued"
    assert await room.jobs() == ["forge/2"]


@story()
async def test_a_pool_that_allows_forks_asks_nobody(room: Mailroom) -> None:
    room.hub.forks[9001] = True

    assert await room.apply(news()) == "enqueued"
    assert room.hub.asked == []


@story(GUARDED)
async def test_the_forge_is_asked_once_for_a_run_however_many_jobs_it_has(room: Mailroom) -> None:
    room.hub.forks[7] = True
    said = [news(number=n, run_id=7) for n in range(5)]
    async with asyncio.TaskGroup() as group:
        done = [group.create_task(room.apply(one)) for one in said]

    assert {task.result() for task in done} == {"fork_denied"}
    assert room.hub.asked == [7]


@story(GUARDED)
async def test_a_known_job_is_not_asked_about_again(room: Mailroom) -> None:
    await room.apply(news())
    await room.apply(news(Action.COMPLETED, 2))
    again = room.new_announcements()  # another replica has no memory of the run

    assert await again.apply(news(), by="test") == "known"
    assert await again.apply(news(number=2), by="test") == "over"
    assert room.hub.asked == [9001]


@story(GUARDED)
async def test_what_the_forge_refuses_to_say_counts_as_a_fork(room: Mailroom) -> None:
    room.hub.forks[9001] = REFUSED

    assert await room.apply(news()) == "fork_denied"


@pytest.mark.parametrize("unsaid", [None, REFUSED], ids=["not said", "refused"])
def test_a_job_of_whose_run_the_forge_says_nothing_at_first_is_not_lost(
    unsaid: ForgeRefused | None,
) -> None:
    """GitHub may announce a job a moment before its own API knows the run; then the sweep must be believed."""

    @story(GUARDED)
    async def told(room: Mailroom) -> None:
        room.hub.forks[9001] = unsaid
        for _ in range(3):
            assert await room.apply(news()) == "fork_denied"
        assert room.hub.asked == [9001], "nor is the forge asked by every sweep"
        room.hub.forks[9001] = False
        await room.clock.sleep(60)
        assert await room.apply(news()) == "enqueued"

    told()


@story(GUARDED)
async def test_a_forge_that_fails_is_not_asked_for_the_same_tenant_for_a_while(
    room: Mailroom,
) -> None:
    room.hub.forks[9001] = DOWN
    with pytest.raises(ForgeUnavailable):
        await room.apply(news())
    with pytest.raises(ForgeUnavailable, match="a moment ago"):
        await room.apply(news(number=2))
    assert room.hub.asked == [9001]
    assert await room.apply(news(number=3, tenant="other")) == "enqueued"

    await room.clock.sleep(room.settings.intake.forge_pause_s)

    assert await room.apply(news(number=2)) == "enqueued"


@story(GUARDED)
async def test_after_a_failure_one_asks_and_the_others_hang_with_nobody(room: Mailroom) -> None:
    """Else all of a tenant's messages would hang at once after each pause, in the places of the others'."""
    room.hub.forks[1] = DOWN
    with pytest.raises(ForgeUnavailable):
        await room.apply(news(run_id=1))
    await room.clock.sleep(room.settings.intake.forge_pause_s)
    many = range(2, 60)
    room.hub.hangs.update(many)
    room.hub.asked.clear()

    answers = await asyncio.gather(
        *(room.apply(news(number=n, run_id=n)) for n in many), return_exceptions=True
    )

    assert all(isinstance(answer, ForgeUnavailable) for answer in answers)
    assert len(room.hub.asked) == 1
    room.hub.hangs.clear()
    await room.clock.sleep(room.settings.intake.forge_pause_s)
    assert await room.apply(news(number=2, run_id=2)) == "enqueued"
    assert await room.apply(news(number=3, run_id=3)) == "enqueued"


@story(GUARDED)
async def test_a_forge_that_refuses_has_answered(room: Mailroom) -> None:
    room.hub.forks |= {1: DOWN, 2: REFUSED}
    with pytest.raises(ForgeUnavailable):
        await room.apply(news(run_id=1))
    await room.clock.sleep(room.settings.intake.forge_pause_s)
    assert await room.apply(news(number=2, run_id=2)) == "fork_denied"
    assert await room.apply(news(number=3, run_id=3)) == "enqueued"


@story(GUARDED)
async def test_a_forge_that_asks_for_a_pause_gets_it(room: Mailroom) -> None:
    room.hub.forks[9001] = THROTTLED
    with pytest.raises(ForgeThrottled):
        await room.apply(news())
    await room.clock.sleep(89)
    with pytest.raises(ForgeError):
        await room.apply(news(number=2))
    await room.clock.sleep(1)
    assert await room.apply(news(number=2)) == "enqueued"


@story(GUARDED)
async def test_a_forge_that_hangs_is_waited_for_only_so_long(room: Mailroom) -> None:
    room.hub.hangs.add(9001)

    with pytest.raises(ForgeUnavailable, match="within 10 s"):
        await room.apply(news())

    assert room.clock.monotonic() == room.settings.intake.forge_s
    assert await room.jobs() == []


# --- In progress ------------------------------------------------------------------------------------------------------


@story()
async def test_a_runner_that_executes_its_job_is_bound_to_it_and_needs_no_removal(
    room: Mailroom,
) -> None:
    await room.apply(news())
    await room.hand_over()
    assert room.noted() == [RUNNER]

    assert await room.apply(news(Action.IN_PROGRESS)) == "executing"

    assert await room.state() is JobState.RUNNING
    assert room.noted() == []


@story()
async def test_a_job_that_runs_before_we_heard_of_it_is_never_in_the_queue(room: Mailroom) -> None:
    await room.apply(news(number=2))
    await room.hand_over()

    assert await room.apply(news(Action.IN_PROGRESS)) == "moved"

    assert await room.state(1) is JobState.RUNNING
    assert await room.state(2) is JobState.QUEUED
    enqueued = [e for e in await room.views.audit(job_id="forge/1") if e.what == "enqueued"]
    assert [entry.why for entry in enqueued] == ["a runner of ours executes it"]


@story()
async def test_a_job_that_somebody_elses_runner_executes_changes_nothing(room: Mailroom) -> None:
    assert await room.apply(news(Action.IN_PROGRESS, runner_name="their-box")) == "elsewhere"
    assert await room.jobs() == []


@story()
async def test_a_foreign_job_on_our_runner_frees_the_job_that_it_was_meant_for(
    room: Mailroom,
) -> None:
    await room.apply(news())
    await room.hand_over()

    foreign = news(Action.IN_PROGRESS, 2, labels=("self-hosted",))
    assert await room.apply(foreign) == "moved"
    assert await room.state(1) is JobState.QUEUED
    assert await room.job(2) is None

    ended = news(Action.COMPLETED, 2, labels=("self-hosted",))
    assert await room.apply(ended) == "completed"
    assert await room.views.claims() == ()


@story()
async def test_an_execution_without_a_runner_says_nothing(room: Mailroom) -> None:
    await room.apply(news())
    assert await room.apply(news(Action.IN_PROGRESS, runner_name="")) == "no_runner"
    assert await room.state() is JobState.QUEUED


@story()
async def test_a_runner_is_said_to_run_two_jobs_and_the_first_word_counts(room: Mailroom) -> None:
    await room.apply(news())
    await room.hand_over()
    await room.apply(news(Action.IN_PROGRESS))

    assert await room.apply(news(Action.IN_PROGRESS, 2)) == "contradicted"

    assert await room.job(2) is None
    assert await room.state(1) is JobState.RUNNING


# --- Completed --------------------------------------------------------------------------------------------------------


@story()
async def test_a_completion_before_its_announcement_keeps_the_job_out(room: Mailroom) -> None:
    assert await room.apply(news(Action.COMPLETED)) == "completed"
    assert await room.apply(news()) == "over"
    assert await room.apply(news(Action.IN_PROGRESS)) == "over"
    assert await room.apply(news(Action.COMPLETED)) == "over"
    assert await room.jobs() == []


@story()
async def test_the_end_of_somebody_elses_job_is_not_written_down(room: Mailroom) -> None:
    hosted = news(Action.COMPLETED, labels=("ubuntu-latest",), runner_name="GitHub Actions 3")

    assert await room.apply(hosted) == "not_ours"

    assert await room.views.completions(("forge/1",)) == {}


@story()
async def test_a_known_job_ends_although_its_pool_is_gone(room: Mailroom) -> None:
    await room.apply(news())
    room.pools.seen.clear()

    assert await room.apply(news(Action.COMPLETED, runner_name="")) == "completed"
    assert await room.state() is JobState.COMPLETED


@story()
async def test_the_end_frees_the_runner_and_settles_its_registration(room: Mailroom) -> None:
    await room.apply(news())
    await room.hand_over()

    assert await room.apply(news(Action.COMPLETED)) == "completed"

    assert await room.views.claims() == ()
    assert room.noted() == []


@story()
async def test_a_job_that_was_cancelled_while_it_waited_ends_no_runner(room: Mailroom) -> None:
    await room.apply(news())
    await room.hand_over()

    ended = news(Action.COMPLETED, runner_name="", conclusion="cancelled", started_at=None)
    assert await room.apply(ended) == "completed"

    assert await room.state() is JobState.CANCELLED
    assert len(await room.views.claims()) == 1
    assert room.noted() == [RUNNER]


@story()
async def test_an_end_without_conclusion_or_time_is_an_end(room: Mailroom) -> None:
    await room.apply(news())

    assert await room.apply(news(Action.COMPLETED, conclusion="", ended_at=None)) == "completed"

    over = await room.views.completions(("forge/1",))
    assert over["forge/1"].conclusion == "unknown"
    assert over["forge/1"].ended_at == room.clock.now()


# --- Another tenant's word (S6) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [Action.QUEUED, Action.IN_PROGRESS, Action.COMPLETED])
def test_another_tenant_changes_nothing_of_a_job(action: Action) -> None:
    async def main() -> None:
        room = a_mailroom()
        await room.apply(news())
        await room.hand_over()
        before = await room.job()

        assert await room.apply(news(action, tenant="evil")) == "wrong_tenant"

        assert await room.job() == before
        assert len(await room.views.claims()) == 1
        assert room.noted() == [RUNNER]

    run(main)


@story()
async def test_another_tenants_runner_of_the_same_name_is_not_ours(room: Mailroom) -> None:
    await room.apply(news())
    await room.hand_over()

    assert await room.apply(news(Action.IN_PROGRESS, 2, tenant="evil")) == "elsewhere"
    assert await room.apply(news(Action.COMPLETED, 2, tenant="evil")) == "completed"

    assert await room.state(1) is JobState.RUNNING
    assert len(await room.views.claims()) == 1
    assert room.noted() == [RUNNER]


# --- Any order --------------------------------------------------------------------------------------------------------

STORY = (news(), news(Action.WAITING), news(Action.IN_PROGRESS), news(Action.COMPLETED))
FORGED = tuple(replace(one, tenant="evil") for one in STORY)


async def _play(told: list[Announcement], *, hand_over_at: int) -> tuple[Mailroom, set[str]]:
    """Tell of a job while its runner is handed some job of the same pool at some moment."""
    room = a_mailroom()
    await room.apply(news(number=2, queued_at=room.at(-1)))
    outcomes = set()
    for number, one in enumerate(told):
        if number == hand_over_at:
            await room.hand_over()
        outcomes.add(await room.apply(one))
        await check_books(room.views)
    return room, outcomes


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(STORY), min_size=1, max_size=8).flatmap(st.permutations),
    st.integers(0, 8),
)
def test_any_order_and_number_of_messages_ends_in_the_same_safe_state(
    told: list[Announcement], hand_over_at: int
) -> None:
    async def main() -> None:
        room, outcomes = await _play(told, hand_over_at=hand_over_at)
        actions = [one.action for one in told]
        state, over = await room.state(1), await room.views.completions(("forge/1",))

        assert outcomes <= set(OUTCOMES)
        if Action.COMPLETED in actions:
            assert over
            assert state in {None, JobState.COMPLETED}
        elif Action.IN_PROGRESS in actions[hand_over_at:]:
            assert state is JobState.RUNNING
        elif Action.QUEUED in actions:
            assert state is JobState.QUEUED
        else:
            assert state is None
        # The other job is where it was, or has the runner: it is never lost.
        assert await room.state(2) in {JobState.QUEUED, JobState.RUNNING}
        assert await room.jobs() == sorted({"forge/2"} | ({"forge/1"} if state else set()))

    run(main)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(STORY + FORGED), min_size=1, max_size=10),
    st.integers(0, 10),
)
def test_a_known_job_is_never_another_tenants(told: list[Announcement], hand_over_at: int) -> None:
    async def main() -> None:
        honest = [news(), *(one for one in told if one.tenant == "acme")]
        room, _ = await _play([news(), *told], hand_over_at=hand_over_at + 1)
        alone, _ = await _play(honest, hand_over_at=_index(told, hand_over_at) + 1)

        assert await room.state(1) == await alone.state(1)
        assert await room.jobs() == await alone.jobs()
        assert {s.tenant for s in await room.views.standings()} <= {"acme", "evil"}

    run(main)


def _index(told: list[Announcement], hand_over_at: int) -> int:
    """Return how many honest messages come before the hand-over, or a number that never comes."""
    if hand_over_at >= len(told):
        return len(told) + 1
    return sum(one.tenant == "acme" for one in told[:hand_over_at])
