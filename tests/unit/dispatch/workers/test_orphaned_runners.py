"""Jobs that run here for all we know, and what the forge says about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.control.cache import Key
from remuda.dispatch.decide.recovery import Doubt, Evidence, Requeue
from remuda.dispatch.workers.orphaned_runners import OrphanedRunners
from remuda.model.job import JobState
from remuda.ports.database import DatabaseTimeout
from remuda.ports.forge import ForgeThrottled, Removal
from remuda.ports.jobs import Attribution, Execution, PodEnd, Running
from tests.unit.dispatch.yard import GONE, QUEUED, SPACE, down, ended, runs_on, story
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from remuda.ports.forge import ForgeJob
    from tests.unit.dispatch.yard import Yard


async def handed_over(yard: Yard, number: int = 1, pod: str = "p") -> OrphanedRunners:
    await yard.queue(number)
    await yard.warm_pod(pod)
    await yard.deliver(pod)
    await yard.later(1)  # our view sees the Pod
    return OrphanedRunners(yard.parts)


# --- A runner that never registered -----------------------------------------------------------------------------------


@story()
async def test_a_job_that_nobody_took_up_is_back_within_a_minute(yard: Yard) -> None:
    worker = await handed_over(yard)
    place = yard.tables.jobs["forge/1"].spec.queued_at

    await yard.turns(worker, 45)

    assert yard.state(1) is JobState.QUEUED
    assert yard.tables.jobs["forge/1"].spec.queued_at == place
    assert yard.mended("orphan_requeued") == 1
    assert yard.metric("remuda_recovery_stranded_seconds_count") == 1


@story()
async def test_the_pod_of_such_a_job_keeps_its_session_and_is_not_anybodys_prey(yard: Yard) -> None:
    worker = await handed_over(yard)

    await yard.turns(worker, 45)

    assert "p" in await yard.parts.views.occupied_pods()


@story()
async def test_young_with_its_pod_present_is_left_and_not_even_asked_about(yard: Yard) -> None:
    worker = await handed_over(yard)

    await yard.turns(worker, 15)

    assert yard.state(1) is JobState.RUNNING
    assert yard.forge.asked == []


@story()
async def test_what_the_forge_says_runs_is_left_and_bound_to_its_runner(yard: Yard) -> None:
    worker = await handed_over(yard)
    yard.forge.say(1, runs_on("r-p"))

    await yard.turns(worker, 600)

    assert yard.state(1) is JobState.RUNNING
    assert yard.tables.claims["p"].executed_at is not None, "the message about it was lost"
    assert yard.forge.asked == ["forge/1"], "a healthy job costs no more requests"


@story()
async def test_what_ended_there_ends_here_and_frees_the_runner_that_ran_it(yard: Yard) -> None:
    worker = await handed_over(yard)
    yard.forge.say(1, ended("failure", "r-p"))

    await yard.turns(worker, 45)

    assert yard.state(1) is JobState.COMPLETED
    assert yard.tables.jobs["forge/1"].conclusion == "failure"
    assert yard.tables.claims == {}
    assert yard.mended("orphan_completed") == 1


@story()
async def test_what_the_forge_has_forgotten_ends_only_when_it_says_so_for_a_minute(
    yard: Yard,
) -> None:
    worker = await handed_over(yard)
    yard.forge.say(1, GONE)
    await yard.turns(worker, 60)
    assert yard.state(1) is JobState.RUNNING, "a forge that lost its mind for a moment ends no job"

    await yard.turns(worker, 90)

    assert yard.state(1) is JobState.COMPLETED
    assert yard.tables.claims == {}


@story()
async def test_a_forge_that_does_not_answer_changes_nothing_and_is_asked_again(yard: Yard) -> None:
    worker = await handed_over(yard)
    yard.forge.say(1, down())
    await yard.turns(worker, 120)
    assert yard.state(1) is JobState.RUNNING

    yard.forge.say(1, QUEUED)
    await yard.turns(worker, 60)

    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_throttled_tenant_is_left_alone_for_as_long_as_the_forge_wants(yard: Yard) -> None:
    worker = await handed_over(yard)
    yard.forge.say(1, ForgeThrottled("Too much", why="429", fix="Wait", retry_after_s=300.0))

    await yard.turns(worker, 300)

    assert len(yard.forge.asked) == 1


@story()
async def test_a_job_of_a_forge_that_is_not_served_any_more_is_left(yard: Yard) -> None:
    worker = await handed_over(yard)
    yard.parts.forges.pop(yard.forge.kind)  # type: ignore[attr-defined]

    await yard.turns(worker, 600)

    assert yard.state(1) is JobState.RUNNING


@story()
async def test_one_job_that_a_bug_of_ours_breaks_on_stops_no_other(yard: Yard) -> None:
    worker = await handed_over(yard)
    await handed_over(yard, 2, "q")
    yard.forge.say(1, ValueError("nobody thought of this"))

    await yard.turns(worker, 60)

    assert yard.forge.asked.count("forge/1") <= 3, "it is put off as others are"
    assert yard.state(1) is JobState.RUNNING
    assert yard.state(2) is JobState.QUEUED
    assert yard.metric("remuda_worker_failures_total", worker="orphaned-runners")


@story()
async def test_one_job_whose_forge_hangs_delays_no_other(yard: Yard) -> None:
    worker = await handed_over(yard)
    await handed_over(yard, 2, "q")
    slow = ["forge/1"]

    async def think() -> None:
        if yard.forge.asked[-1] in slow:
            await yard.later(3600)

    yard.forge.meanwhile = think
    yard.start(yard.turns(worker, 60), "turning")
    await yard.later(60)

    assert yard.state(2) is JobState.QUEUED


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(runs_on("r-p"), id="it runs"),
        pytest.param(ended("success", "r-p"), id="it ran"),
    ],
)
def test_the_registration_of_a_runner_that_was_used_needs_no_removal(answer: ForgeJob) -> None:
    @story()
    async def play(yard: Yard) -> None:
        worker = await handed_over(yard)
        await yard.note("r-p")
        yard.forge.say(1, answer)

        await yard.turns(worker, 45)

        assert yard.tables.registrations == {}

    play()


@story()
async def test_the_registration_of_a_namesake_of_another_runner_stays(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.note("alien")
    yard.forge.say(1, ended("success", "alien"))

    await yard.turns(worker, 45)

    assert list(yard.tables.registrations) == ["alien"]


# --- Siblings ---------------------------------------------------------------------------------------------------------


@story()
async def test_a_runner_that_executes_a_sibling_keeps_its_claim_although_its_own_job_waits(
    yard: Yard,
) -> None:
    worker = await handed_over(yard)
    await yard.queue(2)
    yard.forge.removals["r-p"] = Removal.BUSY
    yard.forge.say(2, runs_on("r-p"))  # and the message about it was lost

    await yard.turns(worker, 45)

    assert yard.tables.claims["p"].claim.job_id == "forge/2"
    assert yard.state(2) is JobState.RUNNING
    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_runner_that_nobody_took_up_is_taken_away_at_its_forge_first(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.note("r-p")

    await yard.turns(worker, 45)

    assert yard.forge.removed == ["r-p"]
    assert yard.tables.registrations == {}
    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_runner_that_is_busy_keeps_its_job_while_the_forges_list_lags(yard: Yard) -> None:
    worker = await handed_over(yard)
    yard.forge.removals["r-p"] = Removal.BUSY
    await yard.turns(worker, 31)
    assert yard.forge.removed == ["r-p"]
    yard.forge.say(1, runs_on("r-p"))  # the list has caught up

    await yard.turns(worker, 60)

    assert yard.state(1) is JobState.RUNNING
    assert yard.tables.claims["p"].executed_at is not None


@story()
async def test_a_runner_that_is_busy_with_who_knows_what_gives_its_job_back_within_a_minute(
    yard: Yard,
) -> None:
    worker = await handed_over(yard)
    yard.forge.removals["r-p"] = Removal.BUSY

    await yard.turns(worker, 58)

    assert yard.state(1) is JobState.QUEUED
    assert yard.tables.claims["p"].runner_name == "r-p", (
        "its VM works, so its room is not free (S3)"
    )


@story()
async def test_what_a_runner_was_busy_with_is_known_once_the_forge_names_it(yard: Yard) -> None:
    worker = await handed_over(yard)
    yard.forge.removals["r-p"] = Removal.BUSY
    await yard.turns(worker, 58)

    await yard.queue(2)
    execution = Execution(
        tenant="acme", job_id="forge/2", runner_name="r-p", started_at=yard.clock.now(), by="test"
    )
    assert await yard.parts.store.attribute(execution) is Attribution.MOVED

    assert yard.state(2) is JobState.RUNNING
    assert yard.state(1) is JobState.QUEUED
    assert yard.tables.claims["p"].claim.job_id == "forge/2"


@story()
async def test_a_runner_that_cannot_be_taken_away_keeps_its_job_for_now(yard: Yard) -> None:
    worker = await handed_over(yard)
    yard.forge.removals["r-p"] = down()
    await yard.turns(worker, 60)
    assert yard.state(1) is JobState.RUNNING

    yard.forge.removals.clear()
    await yard.turns(worker, 60)
    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_runner_that_ran_a_sibling_to_its_end_unheard_is_found_out(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.queue(2)
    yard.forge.removals["r-p"] = Removal.GONE
    yard.forge.say(2, ended("success", "r-p"))

    await yard.turns(worker, 45)

    assert yard.state(2) is JobState.COMPLETED
    assert yard.session("p").executed_job_id == "forge/2"
    assert yard.state(1) is JobState.QUEUED


@story()
async def test_two_runners_that_swapped_their_jobs_are_both_left(yard: Yard) -> None:
    worker = await handed_over(yard)
    await handed_over(yard, 2, "q")
    yard.forge.say(1, runs_on("r-q"))
    yard.forge.say(2, runs_on("r-p"))

    await yard.turns(worker, 120)

    held = {pod: live.claim.job_id for pod, live in yard.tables.claims.items()}
    assert held == {"p": "forge/2", "q": "forge/1"}
    assert {yard.state(1), yard.state(2)} == {JobState.RUNNING}


@story()
async def test_once_proven_a_sibling_execution_is_left_while_the_pod_lives(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.queue(2)
    await yard.executes(2, "r-p")

    await yard.turns(worker, 600)

    assert yard.tables.claims["p"].claim.job_id == "forge/2"


@story()
async def test_siblings_are_asked_about_a_few_at_a_time_and_once_in_a_turn(yard: Yard) -> None:
    worker = await handed_over(yard)
    await handed_over(yard, 2, "q")
    yard.forge.removals |= {"r-p": Removal.GONE, "r-q": Removal.GONE}
    await yard.queue(*range(3, 40))
    await yard.turns(worker, 20)
    yard.forge.asked.clear()

    await yard.turns(worker, 20)

    assert len(yard.forge.asked) <= 2 + 2 * 5
    assert len(set(yard.forge.asked)) == len(yard.forge.asked)


# --- A Pod that ended -------------------------------------------------------------------------------------------------


@story()
async def test_young_with_its_pod_gone_is_back_at_once(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.remove("p")
    await yard.warm_pod("other")
    await yard.later(1)

    await worker.tick()

    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_pod_that_stopped_is_as_good_as_gone(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.status("p", phase="Failed")
    await yard.later(1)

    await worker.tick()

    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_namesake_with_another_uid_is_not_the_pod(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.remove("p")
    await yard.warm_pod("p")
    await yard.later(1)

    await worker.tick()

    assert yard.state(1) is JobState.QUEUED


@story()
async def test_a_pod_that_is_gone_outranks_a_sibling_execution(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.executes(1, "r-p")
    await yard.remove("p")
    await yard.warm_pod("other")
    await yard.later(1)

    await worker.tick()

    assert yard.state(1) is JobState.QUEUED, "the forge queued it again, and nobody else runs it"


@story()
async def test_a_gone_pods_job_that_runs_there_is_asked_about_until_the_forge_notices(
    yard: Yard,
) -> None:
    worker = await handed_over(yard)
    yard.forge.say(1, runs_on("r-p"))
    await yard.remove("p")
    await yard.warm_pod("other")
    await yard.turns(worker, 600)
    assert yard.state(1) is JobState.RUNNING

    yard.forge.say(1, ended("failure", "r-p"))
    await yard.turns(worker, 60)

    assert yard.state(1) is JobState.COMPLETED
    assert len(yard.forge.asked) < 25


@story()
async def test_a_pod_that_our_view_lacks_but_the_server_has_is_no_evidence(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.warm_pod("other")
    pods = yard.parts.view.pods
    await yard.later(1)
    pods._cache.drop(Key(SPACE, "p"))  # noqa: SLF001 - a lost event

    await worker.tick()

    assert yard.forge.asked == []


@story()
async def test_a_server_that_does_not_say_is_no_evidence(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.remove("p")
    await yard.warm_pod("other")
    await yard.later(1)
    yard.tap.hurts.append(Hurt("GET .*/pods/p", "dropped", times=99))

    await worker.tick()

    assert yard.forge.asked == []
    assert yard.state(1) is JobState.RUNNING


@story()
async def test_a_server_that_hangs_holds_up_no_question_to_the_forge(yard: Yard) -> None:
    for number in range(1, 13):
        await handed_over(yard, number, f"p{number}")
        await yard.remove(f"p{number}")
    worker = OrphanedRunners(yard.parts)
    await yard.warm_pod("other")
    await yard.later(1)
    yard.tap.hurts.append(Hurt("GET .*/pods/p", "hangs", times=999))
    began = yard.clock.monotonic()

    await yard.turns(worker, 40)

    assert yard.clock.monotonic() - began < 90, "a turn in which every read hangs is bounded"
    assert len(set(yard.forge.asked)) == 12


@story()
async def test_an_empty_view_is_no_evidence(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.remove("p")
    await yard.later(1)
    assert yard.parts.view.pods.all() == ()

    await worker.tick()

    assert yard.forge.asked == []


@story()
async def test_without_running_jobs_nobody_is_asked_anything(yard: Yard) -> None:
    yard.views.fails = "claims"  # it would raise

    await OrphanedRunners(yard.parts).tick()

    assert yard.forge.asked == []


@story()
async def test_a_job_whose_claim_went_with_its_pod_is_asked_about_at_once(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.jobs.stop_pod(PodEnd(pod="p", ended_at=yard.clock.now(), by="test"))

    await worker.tick()

    assert yard.state(1) is JobState.QUEUED


# --- Old evidence -----------------------------------------------------------------------------------------------------


@story()
async def test_a_job_that_was_handed_out_anew_while_the_forge_thought_is_not_taken_away(
    yard: Yard,
) -> None:
    worker = await handed_over(yard)
    await yard.warm_pod("q")
    await yard.later(1)
    fresh = []

    async def think() -> None:
        yard.forge.meanwhile = None
        await yard.jobs.stop_pod(PodEnd(pod="p", ended_at=yard.clock.now(), by="test"))
        old = yard.tables.jobs["forge/1"]
        doubt, back = Doubt(old, Evidence.POD_ENDED), Requeue("test")
        await worker._inquiry._requeue(doubt, back)  # noqa: SLF001 - another replica was quicker
        fresh.append(await yard.deliver("q"))
        await yard.later(60)  # and this one was paused

    yard.forge.meanwhile = think
    await yard.later(30)
    await yard.turns(worker, 45)

    assert yard.tables.claims["q"].claim == fresh[0]
    assert yard.state(1) is JobState.RUNNING


@story()
async def test_a_job_that_was_delivered_again_while_the_forge_thought_stays(yard: Yard) -> None:
    worker = await handed_over(yard)
    claim = yard.tables.claims["p"].claim

    async def think() -> None:
        yard.forge.meanwhile = None
        window = yard.parts.settings.polls.delivery_window
        again = await yard.jobs.deliver_again(claim, "r-2", within=window)
        assert isinstance(again, Running)

    yard.forge.meanwhile = think
    await yard.turns(worker, 35)

    assert yard.forge.asked == ["forge/1"]
    assert yard.state(1) is JobState.RUNNING
    assert yard.tables.claims["p"].runner_name == "r-2"


@story()
async def test_a_job_handed_over_between_two_reads_is_not_taken_for_one_without_a_claim(
    yard: Yard,
) -> None:
    await yard.warm_pod("p")
    await yard.queue(1)
    worker = OrphanedRunners(yard.parts)
    read = yard.views.jobs

    async def jobs_then_a_poll(**how: object) -> object:
        found = await read(**how)
        if not yard.tables.claims:
            await yard.deliver("p")
        return found

    yard.views.jobs = jobs_then_a_poll  # type: ignore[method-assign,assignment]
    await worker.tick()
    await worker.tick()

    assert yard.forge.asked == []
    assert yard.state(1) is JobState.RUNNING


@story()
async def test_a_database_that_does_not_answer_ends_the_turn_and_nothing_else(yard: Yard) -> None:
    worker = await handed_over(yard)
    await yard.later(60)
    yard.views.fails = "claims"

    with pytest.raises(DatabaseTimeout):
        await worker.tick()

    assert yard.forge.asked == []
