"""Claims and sessions whose Pod ended or is gone, although nobody reported it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.dispatch.workers.missing_pods import MissingPods
from remuda.model.job import JobState
from remuda.ports.jobs import JobEnd, PodEnd
from tests.unit.dispatch.yard import QUEUED, ended, runs_on, story
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from remuda.kube.patches import JsonValue
    from tests.unit.dispatch.yard import Yard


async def vanished(yard: Yard, *, delivered: bool = True) -> MissingPods:
    """Let a Pod with a job vanish."""
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.warm_pod("other")
    await (yard.deliver("p") if delivered else yard.take("p"))
    await yard.remove("p")
    return MissingPods(yard.parts)


# --- Claims -----------------------------------------------------------------------------------------------------------


@story()
async def test_the_first_absence_is_only_noted(yard: Yard) -> None:
    worker = await vanished(yard)

    await worker.tick()

    assert yard.tables.claims["p"].missing_since is not None
    assert yard.state(1) is JobState.RUNNING


@story()
async def test_a_claim_whose_pod_is_gone_ends_after_its_grace_and_its_job_is_asked_about(
    yard: Yard,
) -> None:
    worker = await vanished(yard)

    await yard.turns(worker, 45)

    assert yard.tables.claims == {}
    assert yard.state(1) is JobState.QUEUED
    assert yard.session("p").ended_at is not None
    assert yard.mended("pod_missing_claim") == 1


@story()
async def test_a_job_that_was_never_handed_over_goes_back_without_asking_anybody(
    yard: Yard,
) -> None:
    worker = await vanished(yard, delivered=False)

    await yard.turns(worker, 45)

    assert yard.state(1) is JobState.QUEUED
    assert yard.forge.asked == []


@story()
async def test_a_job_that_the_forge_says_runs_is_not_handed_out_a_second_time(yard: Yard) -> None:
    worker = await vanished(yard)
    yard.forge.say(1, runs_on("r-p"))

    await yard.turns(worker, 45)

    assert yard.tables.claims == {}, "its room is free"
    assert yard.state(1) is JobState.RUNNING, "and the worker of orphaned runners asks on"


@story()
async def test_a_pod_that_stopped_needs_no_second_look(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.deliver("p")
    await yard.status("p", phase="Failed")

    await MissingPods(yard.parts).tick()

    assert yard.tables.claims == {}
    assert yard.state(1) is JobState.QUEUED


@story()
async def test_inside_the_grace_the_claim_is_kept(yard: Yard) -> None:
    worker = await vanished(yard)

    await yard.turns(worker, 20)

    assert "p" in yard.tables.claims


@story()
async def test_a_pod_that_is_seen_again_clears_the_note(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    claim = await yard.deliver("p")
    await yard.jobs.sight_pods(present=[], absent=[claim], by="test")

    await MissingPods(yard.parts).tick()

    assert yard.tables.claims["p"].missing_since is None


@story()
async def test_a_namesake_with_another_uid_keeps_no_claim_alive_and_loses_none_of_its_own(
    yard: Yard,
) -> None:
    worker = await vanished(yard)
    await yard.warm_pod("p")
    await yard.turns(worker, 45)
    assert yard.tables.claims == {}
    fresh = await yard.deliver("p")

    await yard.turns(worker, 120)

    assert yard.tables.claims["p"].claim == fresh
    assert yard.state(1) is JobState.RUNNING


@story()
async def test_a_list_that_fails_ends_nothing(yard: Yard) -> None:
    worker = await vanished(yard)
    yard.tap.hurts.append(Hurt("GET .*/pods$", "dropped", times=99))

    await yard.turns(worker, 120)

    assert yard.tables.claims["p"].missing_since is None


@story()
async def test_an_empty_list_ends_nothing(yard: Yard) -> None:
    worker = await vanished(yard)
    await yard.remove("other")

    await yard.turns(worker, 120)

    assert yard.tables.claims["p"].missing_since is None


@story()
async def test_a_list_that_lacks_a_pod_which_the_server_has_ends_nothing(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.warm_pod("other")
    await yard.deliver("p")
    await yard.kube_label("p", runner=None)  # half a list, or a person took it out

    await yard.turns(MissingPods(yard.parts), 120)

    assert "p" in yard.tables.claims
    assert yard.state(1) is JobState.RUNNING


@story()
async def test_a_server_that_does_not_confirm_ends_nothing(yard: Yard) -> None:
    worker = await vanished(yard)
    yard.tap.hurts.append(Hurt("GET .*/pods/p$", "dropped", times=99))

    await yard.turns(worker, 120)

    assert "p" in yard.tables.claims


@story()
async def test_without_claims_and_sessions_no_pod_is_read(yard: Yard) -> None:
    yard.tap.hurts.append(hurt := Hurt("GET .*/pods$", "dropped"))

    await MissingPods(yard.parts).tick()

    assert hurt.times == 1


@story()
async def test_a_claim_made_between_the_two_reads_does_not_look_missing(yard: Yard) -> None:
    await yard.queue(1, 2)
    await yard.warm_pod("p")
    await yard.deliver("p")
    read = yard.parts.kube.list

    async def a_poll_first(*what: object) -> object:
        await yard.warm_pod("late")
        await yard.deliver("late")
        return await read(*what)  # type: ignore[arg-type]

    yard.parts.kube.list = a_poll_first  # type: ignore[method-assign,assignment]
    await MissingPods(yard.parts).tick()

    assert yard.tables.claims["late"].missing_since is None


@story()
async def test_a_worker_that_was_paused_before_it_acts_takes_no_new_claim_away(yard: Yard) -> None:
    """What it saw is old: the Pod is back, by another list, and the note was cleared."""
    worker = await vanished(yard, delivered=False)
    await worker.tick()
    await yard.later(1)
    (old,) = await yard.parts.views.claims()
    await yard.jobs.sight_pods(present=[old.claim], absent=[], by="another replica")
    await yard.later(60)

    await worker._vanished(old, 60.0)  # noqa: SLF001 - what it does with what it saw before

    assert yard.tables.claims["p"].claim == old.claim


@story()
async def test_what_a_worker_saw_of_a_pod_does_not_close_the_session_of_its_namesake(
    yard: Yard,
) -> None:
    worker = await vanished(yard)
    await worker.tick()
    (old,) = await yard.parts.views.claims()
    spent = yard.session("p")
    await yard.jobs.stop_pod(PodEnd(pod="p", ended_at=yard.clock.now(), by="another replica"))
    await yard.queue(2)
    await yard.warm_pod("p")
    await yard.later(1)
    fresh = await yard.deliver("p")
    await complete(yard, fresh.job_id)
    assert yard.tables.claims == {}

    await worker._vanished(old, 60.0)  # noqa: SLF001 - what it does with what it saw before
    await worker._close(spent, None, 60.0)  # noqa: SLF001 - likewise

    assert yard.tables.sessions[fresh.pod_uid].ended_at is None


@story()
async def test_a_claim_noted_anew_gets_the_whole_grace(yard: Yard) -> None:
    worker = await vanished(yard)
    await worker.tick()
    await yard.later(10)
    await worker.tick()
    held = [live.claim for live in yard.tables.claims.values()]
    await yard.jobs.sight_pods(present=held, absent=[], by="another replica")
    await yard.later(10)
    await worker.tick()
    await yard.later(10)

    await worker.tick()

    assert "p" in yard.tables.claims


@story()
async def test_so_many_in_one_turn(yard: Yard) -> None:
    await yard.warm_pod("other")
    for number in range(1, 29):
        await yard.queue(number)
        await yard.warm_pod(f"p{number}")
        await yard.deliver(f"p{number}")
        await yard.remove(f"p{number}")
    worker = MissingPods(yard.parts)
    for _ in range(4):
        await worker.tick()
        await yard.later(10)

    assert len(yard.tables.claims) == 3


# --- Sessions ---------------------------------------------------------------------------------------------------------


async def lonely(yard: Yard) -> MissingPods:
    """Let a session stay behind: its job ended, and then its Pod vanished."""
    worker = await vanished(yard)
    yard.forge.say(1, ended("success", "r-p"))
    await complete(yard, "forge/1")
    assert yard.tables.claims == {}
    return worker


async def complete(yard: Yard, job_id: str) -> None:
    end = JobEnd(
        job_id=job_id,
        tenant="acme",
        conclusion="success",
        ended_at=yard.clock.now(),
        by="test",
        runner_name="r-p",
    )
    await yard.jobs.complete(end)


@story()
async def test_a_session_whose_pod_is_gone_is_closed_when_its_job_ended(yard: Yard) -> None:
    worker = await lonely(yard)
    over_at = yard.clock.now()
    await yard.later(100)

    await yard.turns(worker, 45)

    assert yard.session("p").ended_at == over_at
    assert yard.mended("orphaned_session") == 1
    assert "p" not in await yard.parts.views.occupied_pods()


@story()
async def test_a_session_without_a_known_end_is_closed_when_its_pod_was_first_missed(
    yard: Yard,
) -> None:
    worker = await vanished(yard)
    yard.forge.say(1, runs_on("r-p"))
    missed_at = yard.clock.now()

    await yard.turns(worker, 45)

    closed = yard.session("p").ended_at
    assert closed is not None
    assert closed - missed_at <= timedelta(seconds=20)


@story()
async def test_a_session_whose_pod_is_there_is_kept(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.deliver("p")
    await complete(yard, "forge/1")

    await yard.turns(MissingPods(yard.parts), 600)

    assert yard.session("p").ended_at is None


@story()
async def test_a_session_whose_pod_stopped_is_closed_with_its_exit(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.deliver("p")
    await complete(yard, "forge/1")
    done: JsonValue = {"terminated": {"exitCode": 3, "finishedAt": "2026-01-01T00:00:30Z"}}
    await yard.later(60)
    await yard.status("p", phase="Failed", containerStatuses=[{"name": "runner", "state": done}])

    await MissingPods(yard.parts).tick()

    assert yard.session("p").exit_code == 3
    assert yard.session("p").ended_at is not None


@story()
async def test_a_session_is_kept_when_a_list_fails_or_is_empty(yard: Yard) -> None:
    worker = await lonely(yard)
    yard.tap.hurts.append(Hurt("GET .*/pods$", "dropped", times=2))
    await yard.turns(worker, 15)
    await yard.remove("other")

    await yard.turns(worker, 120)

    assert yard.session("p").ended_at is None


@story()
async def test_the_whole_way_from_a_lost_pod_to_the_queue_takes_less_than_a_minute(
    yard: Yard,
) -> None:
    worker = await vanished(yard)
    yard.forge.say(1, QUEUED)
    gone_at = yard.clock.monotonic()

    while yard.state(1) is not JobState.QUEUED:
        await yard.later(await worker.tick())

    assert yard.clock.monotonic() - gone_at <= 60
