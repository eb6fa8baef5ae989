"""Handing out and looking up local jobs: a script runs at most once, and its end is known."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.local import LocalForge, is_local
from remuda.model.job import JobState, Kind
from remuda.ports.database import DatabaseUnavailable
from remuda.ports.forge import ForgeJob, ForgeRefused, ForgeState, ForgeUnavailable, Removal
from remuda.ports.jobs import Release, Released
from remuda.ports.registrations import Registration
from tests.support.jobs import START, a_job
from tests.support.local_jobs import a_local_job
from tests.support.local_shop import LocalShop

if TYPE_CHECKING:
    from remuda.ports.local_jobs import LocalJob


async def test_a_claimed_job_is_handed_out_with_its_deadline() -> None:
    shop = LocalShop()
    await shop.post()
    shop.clock.forward(40)

    minted = await shop.hand_over()

    assert (minted.script, dict(minted.env)) == ("echo hello", {"A": "1"})
    assert minted.deadline == START + timedelta(seconds=640)
    assert minted.registration is None
    assert "echo" not in repr(minted)


async def test_a_job_that_needs_what_nobody_here_knows_of_is_left_to_a_newer_server() -> None:
    """Its Pod may have got it from a newer one, and ask here again."""
    shop = LocalShop()
    newer = a_local_job(needs=frozenset({"files", "wings"}))
    await shop.local.add(newer)
    await shop.both.queue(newer.job_id)
    claimed = await shop.claim()

    with pytest.raises(ForgeUnavailable, match="does not know of: wings"):
        await shop.mint(claimed.job)
    assert (await shop.kept(newer.job_id)).end is None


async def test_a_job_may_be_handed_to_its_pod_again_until_it_begins() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()

    assert (await shop.mint(await shop.job(posted.job_id), "r2")).script == "echo hello"
    assert (await shop.says(started=True)).stop == ""
    with pytest.raises(ForgeRefused, match="a runner began it"):
        await shop.mint(await shop.job(posted.job_id), "r3")


async def test_a_begun_job_that_was_put_back_is_not_handed_to_another() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over("linux-a")
    claim = (await shop.job(posted.job_id)).claim
    assert claim is not None
    await shop.says(started=True)
    released = await shop.store.release(claim, Release(by="test", why="a mistake"))
    assert released == Released(posted.job_id, requeued=True)

    claimed = await shop.claim("linux-b")
    with pytest.raises(ForgeRefused):
        await shop.mint(claimed.job)
    await shop.says("linux-a", exit_code=0)

    job = await shop.job(posted.job_id)
    assert (job.state, job.conclusion) == (JobState.COMPLETED, "success")


async def test_a_cancelled_job_ends_when_it_is_about_to_be_handed_out() -> None:
    shop = LocalShop()
    posted = await shop.post()
    claimed = await shop.claim()
    await shop.local.cancel(posted.job_id, START)

    with pytest.raises(ForgeRefused, match="it is over: cancelled"):
        await shop.mint(claimed.job)

    assert (await shop.job(posted.job_id)).state is JobState.CANCELLED


async def test_what_is_not_known_or_not_claimed_is_not_handed_out() -> None:
    shop = LocalShop()
    posted = await shop.post()

    with pytest.raises(ForgeRefused, match="nobody holds a claim"):
        await shop.mint(await shop.job(posted.job_id))
    await shop.store.enqueue(a_job(9, id="local-9", kind=Kind.LOCAL, tenant="local"), by="test")
    with pytest.raises(ForgeRefused, match="not known"):
        await shop.mint(await shop.job("local-9"))


async def test_a_job_is_looked_up_from_its_beginning_to_its_end() -> None:
    shop = LocalShop()
    posted = await shop.post()
    assert await shop.look_up(posted.job_id) == ForgeJob(state=ForgeState.QUEUED)
    await shop.hand_over()
    assert await shop.look_up(posted.job_id) == ForgeJob(state=ForgeState.QUEUED)
    shop.clock.forward(5)
    await shop.says(started=True)
    begun_at = shop.clock.now()
    assert await shop.look_up(posted.job_id) == ForgeJob(
        state=ForgeState.IN_PROGRESS, runner_name="r-linux-a", started_at=begun_at
    )
    shop.clock.forward(5)
    await shop.says(exit_code=1)
    assert await shop.look_up(posted.job_id) == ForgeJob(
        state=ForgeState.COMPLETED,
        conclusion="failure",
        runner_name="r-linux-a",
        started_at=begun_at,
        ended_at=shop.clock.now(),
    )


async def test_a_pod_that_ends_before_its_job_began_leaves_it_waiting() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()
    stopped = await shop.stop_pod(exit_code=1)

    assert [job.spec.id for job in stopped.in_doubt] == [posted.job_id]
    assert (await shop.look_up(posted.job_id)).state is ForgeState.QUEUED


async def test_a_pod_that_ends_after_its_job_began_ends_it_for_good() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()
    await shop.says(started=True)
    await shop.stop_pod()

    found = await shop.look_up(posted.job_id)

    assert (found.state, found.conclusion) == (ForgeState.COMPLETED, "lost")
    kept = await shop.kept(posted.job_id)
    assert kept.end is not None
    assert kept.script == ""
    shop.clock.forward(5)
    await shop.says(exit_code=0)
    assert (await shop.look_up(posted.job_id)).conclusion == "lost"


async def test_a_job_that_is_not_kept_is_gone() -> None:
    shop = LocalShop()
    assert (await shop.forge.look_up(a_job(1, id="local-1"))).state is ForgeState.GONE


async def test_nothing_is_registered_so_nothing_is_removed() -> None:
    registration = Registration(
        runner_name="r", kind=Kind.LOCAL, tenant="local", repository="", job_id="local-1", pod="a"
    )
    assert await LocalShop().forge.remove(registration) is Removal.GONE


async def test_a_fault_of_the_database_is_one_of_the_forge() -> None:
    shop = LocalShop()

    class Broken:
        async def get(self, job_id: str) -> LocalJob | None:
            raise DatabaseUnavailable(f"no {job_id}", why="it is down", fix="wait")

    broken = LocalForge(
        Broken(),  # type: ignore[arg-type]
        shop.store,
        shop.views,
        shop.clock,
        files=shop.files,
    )
    with pytest.raises(ForgeUnavailable, match="it is down"):
        await broken.look_up(a_job(1, id="local-1"))


@pytest.mark.parametrize(
    ("job_id", "local"),
    [
        ("local-x4", True),
        ("github.com/4711", False),
        ("local-x/4", False),
        ("local-", False),
        ("local-\x00", False),
        ("local-x\n", False),
        ("local-X", False),
        ("ghes-local-1/2", False),
    ],
)
def test_local_jobs_are_told_by_their_ids(job_id: str, *, local: bool) -> None:
    assert is_local(job_id) is local
