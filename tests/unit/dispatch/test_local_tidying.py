"""After a crash between the two places that know of a local job, both agree again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.local_tidying import UNQUEUED_AFTER
from remuda.dispatch.settings import RecoverySettings
from remuda.model.job import JobState
from remuda.ports.database import DatabaseUnavailable
from remuda.ports.jobs import Release
from remuda.sim.jobs.local import MemoryLocalJobs
from remuda.sim.jobs.local_files import MemoryLocalFiles
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews
from tests.support.jobs import START, StillClock
from tests.support.local_jobs import LocalStore, a_local_job, an_end
from tests.support.local_shop import LocalShop

if TYPE_CHECKING:
    from remuda.ports.local_jobs import LocalJob


async def test_a_job_that_was_never_enqueued_is_closed_for_good() -> None:
    shop = LocalShop()
    await shop.local.add(a_local_job())
    await shop.tidying.tick()
    assert (await shop.kept("local-1")).end is None
    shop.clock.forward(UNQUEUED_AFTER.total_seconds() + 1)

    await shop.tidying.tick()

    kept = await shop.kept("local-1")
    assert kept.end is not None
    assert "never enqueued" in kept.end.reason
    assert (await shop.views.completions(["local-1"]))["local-1"].conclusion == "cancelled"


async def test_an_end_that_only_one_place_heard_of_reaches_the_store_of_jobs() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()
    await shop.says(started=True)
    await shop.local.end(posted.job_id, an_end("failure", exit_code=9))

    await shop.tidying.tick()

    job = await shop.job(posted.job_id)
    assert (job.state, job.conclusion) == (JobState.COMPLETED, "failure")
    assert await shop.views.claims() == ()


async def test_an_end_that_the_store_of_jobs_knows_ends_the_local_job() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.both.complete(posted.job_id)

    await shop.tidying.tick()

    kept = await shop.kept(posted.job_id)
    assert kept.end is not None
    assert (kept.end.conclusion, kept.script) == ("success", "")


async def test_a_cancel_that_died_half_way_is_finished() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.local.cancel(posted.job_id, START)

    await shop.tidying.tick()

    assert (await shop.job(posted.job_id)).state is JobState.CANCELLED


async def test_a_begun_job_that_was_put_back_is_left_to_its_runner() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.hand_over()
    await shop.says(started=True)
    claim = (await shop.job(posted.job_id)).claim
    assert claim is not None
    await shop.store.release(claim, Release(by="test", why="a mistake"))

    await shop.tidying.tick()
    assert (await shop.kept(posted.job_id)).end is None
    await shop.stop_pod(exit_code=0)
    await shop.tidying.tick()

    assert (await shop.job(posted.job_id)).conclusion == "success"


async def test_what_is_settled_is_left_alone() -> None:
    shop = LocalShop()
    await shop.post()
    await shop.hand_over()
    await shop.says(started=True)
    before = await shop.views.audit(limit=999)
    shop.clock.forward(3600)

    await shop.tidying.tick()

    assert await shop.views.audit(limit=999) == before


async def test_what_ended_long_ago_is_forgotten() -> None:
    shop = LocalShop()
    posted = await shop.post()
    await shop.submissions.cancel(posted.job_id, by="ann")
    shop.clock.forward((RecoverySettings().keep_over + timedelta(seconds=1)).total_seconds())

    await shop.tidying.tick()

    assert await shop.local.get(posted.job_id) is None


class OnePoisoned(MemoryLocalJobs):
    """Jobs of which one cannot be read."""

    poisoned = ""
    fault: Exception

    async def get(self, job_id: str) -> LocalJob | None:
        if job_id == self.poisoned:
            raise self.fault
        return await super().get(job_id)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(DatabaseUnavailable("No", why="no", fix="no"), id="a fault of the world"),
        pytest.param(AssertionError("our bug"), id="a bug of ours"),
    ],
)
async def test_one_job_that_breaks_the_worker_keeps_no_other_from_its_end(fault: Exception) -> None:
    tables = Tables(clock := StillClock())
    local = OnePoisoned(tables)
    files = MemoryLocalFiles(local.peek)
    shop = LocalShop(LocalStore(local, files, MemoryJobs(tables), MemoryJobViews(tables), clock))
    first, second = sorted([(await shop.post()).job_id, (await shop.post()).job_id])
    for job_id in (first, second):
        await shop.both.complete(job_id)
    local.poisoned, local.fault = first, fault

    await shop.tidying.tick()

    local.poisoned = ""
    assert (await shop.kept(second)).end is not None
    assert (await shop.kept(first)).end is None
    name = "remuda_worker_failures_total"
    assert shop.metrics.registry.get_sample_value(name, {"worker": "local_jobs"}) == 1
