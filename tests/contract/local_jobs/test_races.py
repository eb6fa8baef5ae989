"""The whole local forge under real concurrency: many replicas, one end, one runner, no job lost or run twice."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.submissions import Cancellation
from remuda.model.job import JobState
from remuda.ports.forge import ForgeError, ForgeState
from remuda.ports.jobs import Claimed, JobEnd, Release, Running, Stale, WarmRunner
from tests.support.jobs import check_books
from tests.support.local_shop import LocalShop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.local_jobs import LocalStore

PODS = 6


async def recover(shop: LocalShop, job_id: str) -> None:
    """Do as the recovery workers do, from what they see: put back, complete, or leave alone."""
    job = await shop.job(job_id)
    if job.state is not JobState.RUNNING or job.claim is None:
        return
    found = await shop.look_up(job_id)
    if found.state is ForgeState.QUEUED:
        await asyncio.sleep(0)  # what was seen grows old
        await shop.store.release(job.claim, Release(by="recovery", why="it never began"))
    elif found.state is ForgeState.COMPLETED:
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


class World:
    """Pods that run what they are let begin, and count it."""

    def __init__(self, shop: LocalShop, chance: random.Random) -> None:
        self.shop = shop
        self.chance = chance
        self.ran: list[str] = []

    async def pause(self) -> None:
        await asyncio.sleep(self.chance.random() / 200)

    async def live(self, pod: str, *, dies: bool) -> None:
        """One Pod's life: ask for a job until it gets one, ask to begin, run, tell the end, stop."""
        shop = self.shop
        for _ in range(60):
            answer = await shop.store.claim(WarmRunner(pod, f"uid-{pod}", "linux"))
            if isinstance(answer, Claimed):
                break
            await self.pause()
        else:
            return
        handed = False
        try:
            await shop.mint(answer.job)
            await self.pause()
            handed = isinstance(await shop.store.mark_running(answer.claim, f"r-{pod}"), Running)
        except ForgeError:
            pass
        if not handed:
            await shop.store.release(
                answer.claim, Release(by="desk", why="not minted", undelivered=True)
            )
            return
        await self.pause()
        if not (await shop.says(pod, started=True)).stop:
            self.ran.append(answer.job.spec.id)
            await self.pause()
            if not dies:
                await shop.says(pod, log=(0, pod.encode()), exit_code=0)
        await shop.stop_pod(pod, exit_code=None if dies else 0)


async def meddle(world: World, jobs: list[str]) -> None:
    """Mend what may not be broken."""
    for _ in range(25):
        await world.pause()
        await recover(world.shop, world.chance.choice(jobs))
        if world.chance.random() < 0.1:
            await world.shop.tidying.tick()


async def calm_down(world: World, jobs: list[str]) -> None:
    """Let new Pods run what was put back, and the workers mend the rest."""
    for number in range(PODS, PODS + 9):
        await world.live(f"p{number}", dies=False)
        for job_id in jobs:
            await recover(world.shop, job_id)
        await world.shop.tidying.tick()


@pytest.mark.parametrize("seed", range(6))
async def test_a_script_runs_at_most_once_and_every_job_ends(both: LocalStore, seed: int) -> None:
    shop = LocalShop(both)
    world = World(shop, random.Random(seed))  # noqa: S311 - a schedule, no secret
    jobs = [(await shop.post(key=f"k{n}")).job_id for n in range(3)]

    async with asyncio.TaskGroup() as group:
        for number in range(PODS):
            group.create_task(world.live(f"p{number}", dies=number % 3 == 2), name=f"pod {number}")
        for _ in range(2):
            group.create_task(meddle(world, jobs), name="meddle")
        if seed % 2:
            await world.pause()
            await shop.submissions.cancel(jobs[0], by="ann")
    await calm_down(world, jobs)

    assert len(world.ran) == len(set(world.ran)), "a script ran twice"
    for job_id in jobs:
        job, kept = await shop.job(job_id), await shop.kept(job_id)
        assert job.state.over, job
        assert kept.end is not None
        assert kept.end.conclusion == job.conclusion
        assert (kept.started_at is not None) == (job_id in world.ran)
        assert job.conclusion == "cancelled" or job_id in world.ran
    await check_books(shop.views)


async def test_one_end_is_written_however_many_tell_of_it_at_once(both: LocalStore) -> None:
    shop = LocalShop(both)
    posted = await shop.post()
    await shop.hand_over("p")
    await shop.says("p", started=True)

    tells: list[Callable[[], Awaitable[object]]] = [
        lambda: shop.says("p", exit_code=0),
        lambda: shop.says("p", exit_code=7),
        lambda: shop.stop_pod("p", exit_code=0),
        lambda: recover(shop, posted.job_id),
        shop.tidying.tick,
    ]
    await asyncio.gather(*(tell() for tell in tells * 3))
    await recover(shop, posted.job_id)

    job, kept = await shop.job(posted.job_id), await shop.kept(posted.job_id)
    assert job.state is JobState.COMPLETED
    assert kept.end is not None
    assert (kept.end.conclusion, kept.end.at) == (job.conclusion, job.ended_at)
    what = [entry.what for entry in await shop.views.audit(job_id=posted.job_id, limit=99)]
    assert what.count("completed") == 1


async def test_a_cancel_and_a_beginning_at_once_have_one_winner(both: LocalStore) -> None:
    shop = LocalShop(both)
    chance = random.Random(3)  # noqa: S311 - a schedule, no secret
    outcomes = set()

    async def cancel(job_id: str, after_s: float) -> Cancellation:
        await asyncio.sleep(after_s)  # a beginning takes a few statements, a cancel one
        return await shop.submissions.cancel(job_id, by="ann")

    for number in range(40):
        posted = await shop.post()
        pod = f"p{number}"
        await shop.hand_over(pod)
        outcome, reply = await asyncio.gather(
            cancel(posted.job_id, chance.random() / 50), shop.says(pod, started=True)
        )
        outcomes.add(outcome)
        if outcome is Cancellation.CANCELLED:
            assert reply.stop
        else:
            assert (outcome, reply.stop) == (Cancellation.STOPPING, "")
            assert not (await shop.job(posted.job_id)).state.over
        await shop.says(pod, exit_code=1)
        await shop.stop_pod(pod)
        assert (await shop.job(posted.job_id)).state.over
    assert Cancellation.STOPPING in outcomes


async def test_a_cancel_and_a_claim_at_once_leave_nothing_behind(both: LocalStore) -> None:
    shop = LocalShop(both)
    for number in range(12):
        posted = await shop.post()
        runner = WarmRunner(f"p{number}", f"uid-p{number}", "linux")
        _, claimed = await asyncio.gather(
            shop.submissions.cancel(posted.job_id, by="ann"), shop.store.claim(runner)
        )
        if isinstance(claimed, Claimed):
            assert isinstance(await shop.store.mark_running(claimed.claim, "r"), Stale)
            await shop.store.release(
                claimed.claim, Release(by="desk", why="over", undelivered=True)
            )
        assert (await shop.job(posted.job_id)).state is JobState.CANCELLED
    assert await shop.views.claims() == ()
