"""Posting and cancelling local jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.dispatch.submissions import Cancellation, KeyTaken, NoSuchPool, NotReady
from remuda.model.job import JobState, Kind, Os, Size
from remuda.ports.database import DatabaseUnavailable
from remuda.ports.jobs import Fence, Stale
from remuda.ports.kube import Unavailable
from tests.support.jobs import START
from tests.support.local_shop import LIMITS, LocalShop, a_pool


async def test_a_posted_job_waits_in_its_pool() -> None:
    shop = LocalShop()
    posted = await shop.post(name="hello")

    job = await shop.job(posted.job_id)
    assert (posted.pool, posted.state, posted.is_new) == ("linux", JobState.QUEUED, True)
    assert posted.job_id.startswith("local-")
    assert (job.spec.kind, job.spec.tenant, job.spec.repository) == (
        Kind.LOCAL,
        "local",
        "local/ann",
    )
    assert (job.spec.os, job.spec.size, job.spec.label) == (Os.LINUX, Size(4, 8192), "fast")
    assert (job.spec.queued_at, job.spec.name) == (START, "hello")
    (standing,) = await shop.views.standings("local")
    assert (standing.os, standing.limit) == (Os.LINUX, LIMITS[Os.LINUX])


async def test_a_job_may_ask_for_labels_instead_of_a_pool() -> None:
    shop = LocalShop()
    posted = await shop.post(pool="", labels=("self-hosted", "Mac-Mini"))

    assert posted.pool == "mac"
    assert (await shop.job(posted.job_id)).spec.label == "Mac-Mini"


async def test_a_limit_that_a_person_set_is_left_alone() -> None:
    shop = LocalShop()
    await shop.store.set_limits("local", Os.LINUX, Size(1, 1), by="ann")
    await shop.post()

    (standing,) = await shop.views.standings("local")
    assert standing.limit == Size(1, 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param(
            {"pool": "windows"},
            "there is no pool windows; there is linux, mac",
            id="an unknown pool",
        ),
        pytest.param(
            {"pool": "", "labels": ("slow",)}, "No pool has the label slow", id="an unknown label"
        ),
        pytest.param({"pool": "", "labels": ("linux",)}, "no pool's own label", id="no own label"),
    ],
)
async def test_a_job_that_no_pool_takes_is_refused_with_the_names(
    changes: dict[str, Any], says: str
) -> None:
    shop = LocalShop()
    with pytest.raises(NoSuchPool, match=says):
        await shop.post(**changes)
    assert await shop.views.jobs(states=frozenset(JobState)) == ()


async def test_without_any_pool_the_refusal_says_so() -> None:
    shop = LocalShop()
    shop.shelf.kept = ()
    with pytest.raises(NoSuchPool, match="there is none"):
        await shop.post()


async def test_before_the_pools_are_read_nothing_is_refused_for_good() -> None:
    shop = LocalShop()
    shop.shelf.synced = False
    with pytest.raises(NotReady):
        await shop.post()


async def test_a_pool_that_was_made_a_moment_ago_takes_jobs() -> None:
    """The server may not have heard of it yet."""
    shop = LocalShop()
    shop.shelf.new = (a_pool("new", "brand-new"),)

    posted = await shop.post(pool="new")

    assert posted.pool == "new"
    assert (await shop.job(posted.job_id)).spec.label == "brand-new"
    with pytest.raises(NoSuchPool, match="there is no pool other; there is linux, mac"):
        await shop.post(pool="other")


async def test_a_pool_that_cannot_be_looked_for_is_not_refused_for_good() -> None:
    shop = LocalShop()
    shop.shelf.trouble = Unavailable("No answer", why="the API server is away", fix="Start it")

    assert (await shop.post()).pool == "linux", "who is known need not be looked for"
    with pytest.raises(NotReady, match="cannot look for it now: the API server is away"):
        await shop.post(pool="new")


async def test_each_request_without_a_key_is_a_job_of_its_own() -> None:
    shop = LocalShop()
    assert (await shop.post()).job_id != (await shop.post()).job_id


async def test_a_request_that_is_repeated_with_its_key_is_the_same_job() -> None:
    shop = LocalShop()
    first = await shop.post(key="k1")
    shop.clock.forward(60)
    again = await shop.post(key="k1")

    assert (again.job_id, again.submitted_at, again.is_new) == (first.job_id, START, False)
    assert len(await shop.views.jobs(states=frozenset(JobState))) == 1


async def test_a_repeated_request_is_answered_even_if_its_pool_is_gone() -> None:
    shop = LocalShop()
    first = await shop.post(key="k1")
    shop.shelf.kept = (a_pool("other", "other"),)

    assert (await shop.post(key="k1")).job_id == first.job_id


async def test_a_repeated_request_tells_how_its_job_ended() -> None:
    shop = LocalShop()
    await shop.post(key="k1")
    await shop.hand_over()
    await shop.says(started=True)
    await shop.says(exit_code=3)

    again = await shop.post(key="k1")

    assert (again.state, again.conclusion) == (JobState.COMPLETED, "failure")


async def test_keys_of_two_people_are_two_jobs() -> None:
    shop = LocalShop()
    assert (await shop.post(key="k", by="ann")).job_id != (
        await shop.post(key="k", by="bob")
    ).job_id


@pytest.mark.parametrize(
    "changes",
    [{"script": "rm"}, {"env": {}}, {"timeout_s": 1}, {"name": "n"}, {"pool": "mac"}],
    ids=lambda changes: next(iter(changes)),
)
async def test_another_request_under_the_same_key_is_refused(changes: dict[str, Any]) -> None:
    shop = LocalShop()
    await shop.post(key="k1")
    with pytest.raises(KeyTaken):
        await shop.post(key="k1", **changes)


async def test_a_request_that_died_before_it_was_enqueued_is_finished_by_its_repetition() -> None:
    shop = LocalShop()
    enqueue = shop.store.enqueue

    async def broken(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("gone", why="it is down", fix="wait")

    shop.store.enqueue = broken  # type: ignore[method-assign,assignment]
    with pytest.raises(DatabaseUnavailable):
        await shop.post(key="k1")
    shop.store.enqueue = enqueue  # type: ignore[method-assign]

    again = await shop.post(key="k1")

    assert (again.is_new, again.state) == (True, JobState.QUEUED)
    assert (await shop.hand_over()).script == "echo hello"


async def test_the_same_request_at_two_replicas_at_once_is_one_job() -> None:
    shop = LocalShop()
    both = await asyncio.gather(*(shop.post(key="k1") for _ in range(8)))

    assert len({posted.job_id for posted in both}) == 1
    assert sum(posted.is_new for posted in both) == 1


# --- Cancelling -------------------------------------------------------------------------------------------------------


async def test_a_waiting_job_is_cancelled_at_once() -> None:
    shop = LocalShop()
    posted = await shop.post()

    assert await shop.submissions.cancel(posted.job_id, by="ann") is Cancellation.CANCELLED
    assert (await shop.job(posted.job_id)).state is JobState.CANCELLED
    assert (await shop.kept(posted.job_id)).script == ""
    assert await shop.submissions.cancel(posted.job_id, by="ann") is Cancellation.OVER


async def test_a_job_that_is_being_handed_over_is_cancelled_before_it_begins() -> None:
    shop = LocalShop()
    posted = await shop.post()
    claimed = await shop.claim()
    await shop.mint(claimed.job)

    assert await shop.submissions.cancel(posted.job_id, by="ann") is Cancellation.CANCELLED
    assert await shop.store.mark_running(claimed.claim, "r") == Stale(Fence.OVER)


async def test_a_pod_that_has_the_script_of_a_cancelled_job_may_not_begin() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()

    assert await shop.submissions.cancel(posted.job_id, by="ann") is Cancellation.CANCELLED
    assert "over: cancelled" in (await shop.says(started=True)).stop
    assert (await shop.kept(posted.job_id)).begun_by == ""


async def test_a_running_job_is_told_to_stop_and_is_over_when_it_has() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()
    await shop.says(started=True)

    assert await shop.submissions.cancel(posted.job_id, by="ann") is Cancellation.STOPPING
    assert (await shop.job(posted.job_id)).state is JobState.RUNNING
    assert (await shop.says(log=(0, b"x"))).stop == "the job was cancelled"
    shop.clock.forward(1)
    assert (await shop.says(exit_code=143)).stop == ""
    assert (await shop.job(posted.job_id)).state is JobState.CANCELLED


async def test_a_running_job_that_was_cancelled_is_over_when_its_pod_is() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()
    await shop.says(started=True)
    await shop.submissions.cancel(posted.job_id, by="ann")
    await shop.stop_pod()

    assert await shop.submissions.cancel(posted.job_id, by="ann") is Cancellation.CANCELLED
    assert (await shop.job(posted.job_id)).state is JobState.CANCELLED


@pytest.mark.parametrize("job_id", ["local-none", "github.com/1", "local-\x00", ""])
async def test_what_is_no_local_job_is_not_cancelled(job_id: str) -> None:
    assert await LocalShop().submissions.cancel(job_id, by="ann") is Cancellation.UNKNOWN
