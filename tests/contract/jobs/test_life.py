"""The life of a job: taken in once, ended once, whatever order the messages come in."""

from __future__ import annotations

from datetime import timedelta

import pytest

from remuda.model.job import Completion, JobState, Kind, Os, Size
from remuda.ports.jobs import Enqueued, Fence, Known, Over, PodStopped, Released, Stale
from tests.support.jobs import START, Store, a_job, because


async def test_a_job_is_taken_in_with_all_that_the_forge_said(store: Store) -> None:
    spec = a_job(1, kind=Kind.LOCAL, run_id=None, run_attempt=None, fork=True, labels=())
    answer = await store.jobs.enqueue(spec, by="webhook")
    assert isinstance(answer, Enqueued)
    assert answer.job.spec == spec
    assert (answer.job.state, answer.job.claim) == (JobState.QUEUED, None)
    entry = (await store.views.audit())[0]
    assert (entry.who, entry.what, entry.job_id) == ("webhook", "enqueued", "forge/1")
    assert (entry.tenant, entry.pool, entry.at) == ("acme", "linux", START)


async def test_a_repeated_announcement_changes_nothing(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claimed = await store.take("a")
    answer = await store.jobs.enqueue(a_job(1, pool="other", queued_at=START), by="webhook")
    assert answer == Known(claimed.job)
    assert await store.audit(1) == ["enqueued", "claimed"]


async def test_an_announcement_after_the_end_brings_nothing_back(store: Store) -> None:
    await store.queue(a_job(1))
    await store.end(1)
    assert isinstance(await store.jobs.enqueue(a_job(1), by="webhook"), Over)
    assert await store.state(1) is JobState.COMPLETED


async def test_an_end_before_the_announcement_stops_it_for_good(store: Store) -> None:
    ended = await store.end(1, conclusion="cancelled")
    assert ended.news
    answer = await store.jobs.enqueue(a_job(1), by="webhook")
    assert answer == Over(Completion("forge/1", "cancelled", START))
    assert await store.views.job("forge/1") is None
    assert await store.audit(1) == ["completed"]


@pytest.mark.parametrize("state", ["queued", "claimed", "running"])
async def test_a_job_may_end_from_every_state(store: Store, state: str) -> None:
    await store.limit()
    await store.queue(a_job(1))
    if state == "claimed":
        await store.take("a")
    if state == "running":
        await store.run("a")
    store.clock.forward(9)
    assert (await store.end(1, conclusion="failure")).news
    job = await store.job(1)
    assert (job.state, job.conclusion) == (JobState.COMPLETED, "failure")
    assert job.ended_at == store.clock.now()


async def test_a_cancelled_job_is_called_that(store: Store) -> None:
    await store.queue(a_job(1))
    await store.end(1, conclusion="cancelled")
    assert await store.state(1) is JobState.CANCELLED


async def test_a_job_that_is_over_never_changes(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    running = await store.run("a")
    await store.end(1, "r-a")
    ended = await store.job(1)
    store.clock.forward(60)
    again = await store.end(1, "r-a", conclusion="failure")
    assert (again.news, again.freed, again.requeued) == (False, (), ())
    assert running.job.claim is not None
    await store.jobs.release(running.job.claim, because())
    await store.executes(1, "r-a")
    await store.stop("a")
    assert await store.job(1) == ended
    assert (await store.audit(1)).count("completed") == 1


async def test_a_job_cancelled_in_the_queue_leaves_the_pod_its_claim(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    running = await store.run("a")
    ended = await store.end(1, conclusion="cancelled")
    assert ended.freed == ()
    live = await store.views.claim_of("a")
    assert live is not None
    assert live.claim == running.job.claim


async def test_a_sweep_may_end_the_claim_of_a_job_that_the_forge_forgot(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    running = await store.run("a")
    ended = await store.end(1, conclusion="unknown", ends_claim=True, why="the forge says 404")
    assert ended.freed == (running.job.claim,)
    assert await store.views.claims() == ()
    assert (await store.views.audit(job_id="forge/1"))[-1].why == "the forge says 404"


async def test_another_tenant_cannot_end_a_job(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    ended = await store.end(1, "r-a", tenant="evil", ends_claim=True)
    assert (ended.news, ended.freed) == (False, ())
    assert await store.state(1) is JobState.RUNNING


async def test_the_end_of_a_job_frees_the_runner_that_executed_it(store: Store) -> None:
    await store.limit(vcpus=2)
    await store.queue(a_job(1), a_job(2))
    running = await store.run("a")
    started = store.clock.now()
    store.clock.forward(60)
    ended = await store.end(1, "r-a", started_at=started)
    assert ended.freed == (running.job.claim,)
    session = await store.views.session_of("a")
    assert session is not None
    assert session.executed_job_id == "forge/1"
    assert (session.job_started_at, session.job_ended_at) == (started, store.clock.now())
    assert session.ended_at is None
    await store.take("b")


@pytest.mark.parametrize(
    "started",
    [pytest.param(None, id="half a window"), pytest.param(START + timedelta(1), id="a turned one")],
)
async def test_a_window_that_is_none_is_not_kept(store: Store, started: object) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    await store.end(1, "r-a", started_at=started)
    session = await store.views.session_of("a")
    assert session is not None
    assert (session.job_started_at, session.job_ended_at) == (None, None)


async def test_a_pod_that_stops_before_the_mint_gives_its_job_back(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claimed = await store.take("a")
    stopped = await store.stop("a")
    assert (stopped.released, stopped.requeued) == (claimed.claim, "forge/1")
    assert (stopped.session, stopped.in_doubt) == (None, ())
    assert await store.state(1) is JobState.QUEUED
    assert (await store.audit(1))[-1] == "stopped"


async def test_a_pod_that_stops_after_the_mint_leaves_its_job_in_doubt(store: Store) -> None:
    await store.limit(vcpus=2)
    await store.queue(a_job(1), a_job(2))
    running = await store.run("a")
    store.clock.forward(10)
    stopped = await store.stop("a", exit_code=137)
    assert stopped.requeued == ""
    assert stopped.in_doubt == (running.job,)
    assert stopped.session is not None
    assert (stopped.session.ended_at, stopped.session.exit_code) == (store.clock.now(), 137)
    assert await store.state(1) is JobState.RUNNING
    await store.take("b")


async def test_a_job_in_doubt_is_put_back_by_the_handle_that_was_seen(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    (doubtful,) = (await store.stop("a")).in_doubt
    assert doubtful.claim is not None
    assert await store.jobs.release(doubtful.claim, because()) == Released("forge/1", requeued=True)
    again = await store.take("b")
    assert await store.jobs.release(doubtful.claim, because()) == Stale(Fence.GONE)
    assert (await store.job(1)).claim == again.claim


async def test_a_job_in_doubt_is_found_without_its_claim(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2))
    await store.run("a")
    await store.stop("a")
    store.clock.forward(60)
    await store.run("b")
    states = {JobState.RUNNING}
    found = await store.views.jobs(states=states, started_before=store.clock.now())
    assert [job.spec.id for job in found] == ["forge/1"]
    assert (await store.stop("a")).in_doubt == found


async def test_a_late_report_may_only_shorten_a_session(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    at = store.clock.now()
    ends = [at + timedelta(seconds=s) for s in (50, 90, 20)]
    seen = [(await store.stop("a", ended_at=end)).session for end in ends]
    assert [s.ended_at for s in seen if s] == [ends[0], ends[0], ends[2]]


async def test_a_session_never_ends_before_it_begins(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    running = await store.run("a")
    stopped = await store.stop("a", ended_at=START - timedelta(hours=1))
    assert stopped.session is not None
    assert stopped.session.ended_at == running.session.started_at


async def test_a_repeated_report_writes_no_second_audit_entry(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    await store.stop("a")
    before = await store.views.audit()
    await store.stop("a")
    await store.stop("unknown")
    assert (await store.stop("")).session is None
    assert await store.views.audit() == before


async def test_pods_with_a_claim_or_an_open_session_are_occupied(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1), a_job(2), a_job(3))
    await store.take("claimed")
    await store.run("uploading")
    await store.end(2, "r-uploading")
    await store.run("gone")
    await store.stop("gone")
    assert await store.views.occupied_pods() == {"claimed", "uploading"}
    assert [s.pod for s in await store.views.sessions()] == ["uploading"]
    assert [s.pod for s in await store.views.sessions(open_only=False)] == ["uploading", "gone"]


async def test_jobs_are_listed_by_place_in_pages(store: Store) -> None:
    await store.queue(*(a_job(n) for n in (3, 1, 2)))
    states = {JobState.QUEUED}
    first = await store.views.jobs(states=states, limit=2)
    assert [job.spec.id for job in first] == ["forge/1", "forge/2"]
    last = first[-1].spec
    rest = await store.views.jobs(states=states, after=(last.queued_at, last.id))
    assert [job.spec.id for job in rest] == ["forge/3"]
    young = await store.views.jobs(states=states, queued_before=START + timedelta(seconds=2))
    assert [job.spec.id for job in young] == ["forge/1"]


async def test_every_change_is_in_the_audit_and_it_can_be_read_on(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.take("a")).claim
    await store.jobs.release(claim, because("no reason"))
    await store.run("b")
    await store.jobs.sight_pods(
        present=[], absent=[c.claim for c in await store.views.claims()], by="sweep"
    )
    await store.executes(1, "r-b")
    await store.end(1, "r-b")
    await store.stop("b")
    entries = await store.views.audit()
    assert [entry.what for entry in entries] == [
        *("limited", "enqueued", "claimed", "released", "claimed", "running"),
        *("missing", "executing", "completed", "stopped"),
    ]
    assert all(entry.who and entry.why for entry in entries)
    assert await store.views.audit(after=entries[7].number) == entries[8:]
    assert await store.views.audit(limit=2) == entries[:2]


async def test_limits_are_told_with_what_is_used(store: Store) -> None:
    await store.limit(vcpus=8)
    await store.limit("other", vcpus=4, os=Os.DARWIN)
    await store.queue(a_job(1))
    claimed = await store.take("a")
    acme, other = await store.views.standings()
    assert (acme.tenant, acme.used, acme.room) == ("acme", Size(2, 4096), Size(6, 12288))
    assert acme.last_claimed_at == claimed.claim.claimed_at
    assert (other.tenant, other.os, other.used) == ("other", Os.DARWIN, Size(0, 0))


async def test_the_end_of_an_earlier_pod_of_the_name_touches_the_new_one_not(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    await store.run("a")
    answer = await store.stop("a", pod_uid="uid-before")
    assert (answer.released, answer.session, answer.in_doubt) == (None, None, ())
    assert await store.views.claim_of("a") is not None
    answer = await store.stop("a", pod_uid="uid-a")
    assert answer.released is not None
    assert [job.spec.id for job in answer.in_doubt] == ["forge/1"]


async def test_a_pod_that_was_seen_again_is_not_stopped_for_being_missing(store: Store) -> None:
    await store.limit()
    await store.queue(a_job(1))
    claim = (await store.run("a")).job.claim
    assert claim is not None
    await store.jobs.sight_pods(present=[], absent=[claim], by="sweep")
    since = store.clock.now()
    store.clock.forward(30)
    await store.jobs.sight_pods(present=[claim], absent=[], by="sweep")
    assert await store.stop("a", missing_since=since) == PodStopped()
    assert await store.views.occupied_pods() == {"a"}
    await store.jobs.sight_pods(present=[], absent=[claim], by="sweep")
    answer = await store.stop("a", missing_since=store.clock.now())
    assert answer.released == claim
