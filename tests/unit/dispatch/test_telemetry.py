"""What Pods say about their jobs: their own only, any number of times, in any order."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.decide.local_jobs import output_of
from remuda.dispatch.telemetry import Reply
from remuda.model.job import JobState, Os, Size
from remuda.model.output import Output
from remuda.ports.forge import ForgeState
from remuda.ports.jobs import JobEnd, Release
from tests.support.jobs import START, a_job
from tests.support.local_shop import LocalShop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def a_running_job() -> tuple[LocalShop, str]:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()
    assert await shop.says(started=True) == Reply()
    return shop, posted.job_id


async def test_the_beginning_is_proof_that_the_pod_executes_its_job() -> None:
    shop, job_id = await a_running_job()

    live = await shop.views.claim_of("linux-a")
    assert live is not None
    assert live.executed_at == START
    assert (await shop.kept(job_id)).begun_by == "uid-linux-a"
    assert await shop.says(started=True) == Reply()


async def test_a_job_that_exits_is_over_and_frees_its_room() -> None:
    shop, job_id = await a_running_job()
    shop.clock.forward(30)

    assert await shop.says(log=(0, b"bye\n"), exit_code=0) == Reply()

    job = await shop.job(job_id)
    assert (job.state, job.conclusion, job.ended_at) == (
        JobState.COMPLETED,
        "success",
        shop.clock.now(),
    )
    assert await shop.views.claims() == ()
    assert await shop.log(job_id) == b"bye\n"
    session = await shop.views.session_of("linux-a")
    assert session is not None
    assert (session.executed_job_id, session.job_ended_at) == (job_id, shop.clock.now())


async def test_an_exit_that_is_repeated_changes_nothing() -> None:
    shop, job_id = await a_running_job()
    await shop.says(exit_code=3)
    before = await shop.job(job_id), await shop.kept(job_id), await shop.views.audit(limit=999)

    assert await shop.says(exit_code=0) == Reply()

    assert before == (
        await shop.job(job_id),
        await shop.kept(job_id),
        await shop.views.audit(limit=999),
    )


async def test_a_runner_tells_the_rest_of_a_job_whose_pod_ended_first() -> None:
    shop = LocalShop()
    job_id = (await shop.post()).job_id
    await shop.hand_over()
    await shop.says(started=True, tells_end=True, log=(0, b"one "))
    await shop.stop_pod(exit_code=3)
    await shop.look_up(job_id)
    early = await shop.kept(job_id)
    assert output_of(early, shop.clock.now()) is Output.AWAITED

    assert await shop.says(log=(4, b"two"), exit_code=3, files_note="none") == Reply()

    late = await shop.kept(job_id)
    assert early.end is not None
    assert late.end == replace(early.end, more_until=None, files_note="none")
    assert output_of(late, shop.clock.now()) is Output.FINAL
    assert await shop.log(job_id) == b"one two"


async def test_a_gap_in_the_log_takes_nothing_and_says_where_to_go_on() -> None:
    shop, job_id = await a_running_job()
    await shop.says(log=(0, b"one"))

    assert await shop.says(log=(9, b"three"), exit_code=0) == Reply(log_offset=3)
    assert (await shop.job(job_id)).state is JobState.RUNNING
    assert await shop.says(log=(3, b"twooo three"), exit_code=0) == Reply()
    assert await shop.log(job_id) == b"onetwooo three"


async def test_a_job_past_its_deadline_is_told_to_stop_and_timed_out() -> None:
    shop, job_id = await a_running_job()
    shop.clock.forward(599)
    assert await shop.says(log=(0, b"")) == Reply()
    shop.clock.forward(1)
    told = await shop.says(log=(0, b""))
    assert ("600 s" in told.stop, told.overdue) == (True, True)
    await shop.says(exit_code=143)

    assert (await shop.job(job_id)).conclusion == "timed_out"


async def test_a_lying_clock_moves_no_end_out_of_bounds() -> None:
    shop, job_id = await a_running_job()
    shop.clock.forward(10)
    await shop.says(exit_code=0, finished_at=START + timedelta(days=900))

    assert (await shop.job(job_id)).ended_at == shop.clock.now()


@pytest.mark.parametrize("uid", ["uid-other", ""])
async def test_a_pod_of_the_same_name_speaks_for_no_other(uid: str) -> None:
    shop, job_id = await a_running_job()

    assert (await shop.says(exit_code=0, uid=uid)).stop == "this Pod holds no job"
    assert (await shop.says(log=(0, b"lies"), uid=uid)).stop == "this Pod holds no job"
    assert (await shop.job(job_id)).state is JobState.RUNNING
    assert await shop.log(job_id) == b""


async def test_a_pod_without_a_job_may_only_tell_its_vitals() -> None:
    shop = LocalShop()
    assert await shop.says() == Reply()
    assert (await shop.says(started=True)).stop == "this Pod holds no job"


async def test_a_pod_that_was_claimed_for_and_got_nothing_yet_holds_no_job() -> None:
    shop = LocalShop()
    await shop.post()
    await shop.claim()

    assert (await shop.says(started=True)).stop == "this Pod holds no job"


async def test_of_a_forges_job_nothing_is_kept() -> None:
    shop = LocalShop()
    await shop.store.set_limits("acme", Os.LINUX, Size(8, 8 * 4096), by="test")
    await shop.store.enqueue(a_job(1), by="test")
    claimed = await shop.claim()
    await shop.store.mark_running(claimed.claim, "r-linux-a")

    assert await shop.says(started=True, log=(0, b"tail"), exit_code=0) == Reply()

    job = await shop.job("forge/1")
    live = await shop.views.claim_of("linux-a")
    assert job.state is JobState.RUNNING
    assert live is not None
    assert live.executed_at is None


async def test_a_pod_whose_job_was_put_back_may_not_begin_it() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over("linux-a")
    claim = (await shop.job(posted.job_id)).claim
    assert claim is not None
    await shop.store.release(claim, Release(by="test", why="no word from it"))
    await shop.hand_over("linux-b")

    assert (await shop.says("linux-a", started=True)).stop == "this Pod holds no job"
    assert (await shop.says("linux-a", exit_code=0)).stop == "this Pod holds no job"
    assert (await shop.says("linux-a", log=(0, b"x"))).stop == "this Pod holds no job"
    assert await shop.says("linux-b", started=True) == Reply()
    assert (await shop.says("linux-a", exit_code=0)).stop == "another Pod began the job"
    assert (await shop.job(posted.job_id)).state is JobState.RUNNING


async def test_an_exit_without_a_beginning_counts_as_both() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()

    assert await shop.says(exit_code=0) == Reply()
    assert (await shop.job(posted.job_id)).conclusion == "success"
    assert (await shop.kept(posted.job_id)).begun_by == "uid-linux-a"


async def test_a_job_that_the_server_called_lost_is_told_to_stop() -> None:
    shop, job_id = await a_running_job()
    await shop.stop_pod()
    await shop.look_up(job_id)

    assert (await shop.says(log=(0, b"still here"))).stop == "the job is over: lost"
    assert await shop.log(job_id) == b"still here"


async def test_a_pod_whose_claim_was_taken_away_still_ends_its_job() -> None:
    shop, job_id = await a_running_job()
    claim = (await shop.job(job_id)).claim
    assert claim is not None
    await shop.store.release(claim, Release(by="test", why="a mistake"))

    assert await shop.says(exit_code=0) == Reply()
    assert (await shop.job(job_id)).conclusion == "success"


Step = tuple[str, "Callable[[LocalShop, str], Awaitable[object]]"]


async def _look_up_and_complete(shop: LocalShop, job_id: str) -> None:
    """Do as recovery does."""
    found = await shop.look_up(job_id)
    if found.state is ForgeState.COMPLETED:
        await shop.store.complete(
            JobEnd(
                job_id=job_id,
                tenant="local",
                conclusion=found.conclusion,
                ended_at=found.ended_at or shop.clock.now(),
                by="recovery",
                runner_name=found.runner_name,
            )
        )


STEPS: list[Step] = [
    ("exit", lambda shop, _: shop.says(log=(0, b"out"), exit_code=0)),
    ("stop", lambda shop, _: shop.stop_pod(exit_code=0)),
    ("look up", _look_up_and_complete),
    ("cancel", lambda shop, job_id: shop.submissions.cancel(job_id, by="ann")),
    ("exit again", lambda shop, _: shop.says(exit_code=0)),
]


@pytest.mark.parametrize(
    "order",
    list(itertools.permutations(STEPS)),
    ids=lambda order: ", ".join(name for name, _ in order),
)
async def test_in_whatever_order_the_end_comes_it_is_one_end(order: tuple[Step, ...]) -> None:
    shop, job_id = await a_running_job()
    for _, step in order:
        shop.clock.forward(1)
        await step(shop, job_id)

    job, kept = await shop.job(job_id), await shop.kept(job_id)
    assert (job.state, job.conclusion) == (JobState.COMPLETED, "success")
    assert kept.end is not None
    assert (kept.end.conclusion, kept.end.at) == (job.conclusion, job.ended_at)
    assert await shop.views.claims() == ()
    (standing,) = await shop.views.standings("local")
    assert standing.used == Size(0, 0)
    entries = [e.what for e in await shop.views.audit(job_id=job_id, limit=999)]
    assert entries.count("completed") == 1
