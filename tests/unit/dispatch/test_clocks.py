"""Replicas whose clocks disagree by minutes, and one that was stopped for a while: what it knew then harms nobody."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.answers import AlreadyDelivered, Handed
from remuda.dispatch.attempt import Step
from remuda.dispatch.stamps import Stamps, carries
from remuda.kube.core import Pod
from remuda.model.job import JobState, Os, Size
from remuda.ports.jobs import Claimed, Release, Running, WarmRunner
from tests.unit.dispatch.attempts import Fault, begin
from tests.unit.dispatch.hall import SETTINGS, in_hall

if TYPE_CHECKING:
    from remuda.model.job import Claim
    from tests.unit.dispatch.hall import Hall

SKEWS = [timedelta(0), timedelta(minutes=5)]


async def yes() -> bool:
    return True


def ahead(hall: Hall, by: timedelta) -> None:
    """Let a replica whose clock is ahead have claimed for the tenant before: its next tokens are from the future."""
    key = ("acme", Os.LINUX)
    last = hall.clock.now() + by
    hall.tables.limits[key] = replace(hall.tables.limits[key], last_claimed_at=last)


async def claimed(hall: Hall, pod: str) -> Claim:
    answer = await hall.store.claim(WarmRunner(pod, hall.pods[pod].uid, "linux"))
    assert isinstance(answer, Claimed)
    return answer.claim


async def given_up(hall: Hall) -> None:
    """Release what an attempt works on, as a worker does."""
    (live,) = hall.tables.claims.values()
    stale = Release(by="worker", why="too old", undelivered=True, runner_name="")
    await hall.store.release(live.claim, stale)


@pytest.mark.parametrize("skew", SKEWS, ids=str)
@pytest.mark.parametrize("step", [Step.CLAIMED, Step.STAMPED, Step.MINTED])
def test_a_replica_that_was_stopped_takes_no_stamp_from_the_next_claim(
    step: Step, skew: timedelta
) -> None:
    """While it is stopped, its claim is given up and the same Pod is handed another tenant's job."""

    async def play(hall: Hall) -> None:
        await hall.store.set_limits("globex", Os.LINUX, Size(64, 128 * 1024), by="test")
        await hall.add_pod("b")
        ahead(hall, skew)
        asking = await begin(hall)
        next_claims: list[Claim] = []

        async def meanwhile() -> None:
            await given_up(hall)
            assert (await claimed(hall, "b")).job_id == "forge/1"
            await hall.queue(2, tenant="globex")
            claim = await claimed(hall, "a")
            others = Stamps(hall.kube, SETTINGS)
            assert isinstance(
                await others.stamp(await hall.pod(), claim, "globex", stands=yes), Pod
            )
            assert isinstance(await hall.store.mark_running(claim, "r-a"), Running)
            await hall.executes(2, "r-a", tenant="globex")
            next_claims.append(claim)

        hall.at = Fault(hall, step, meanwhile).at
        assert await asking.answer() == AlreadyDelivered("forge/2")
        await hall.later(1)

        assert carries(await hall.pod(), next_claims[0]), "a busy runner keeps its stamp"
        assert hall.state(2) is JobState.RUNNING
        assert hall.forge.runners == {}

    in_hall(play)


def test_a_leftover_stamp_from_the_future_does_not_keep_a_runner_from_work() -> None:
    """Its replica's clock was ahead, and it died before it could take the stamp off."""

    async def play(hall: Hall) -> None:
        await hall.add_pod()
        ahead(hall, timedelta(minutes=5))
        await hall.queue(1)
        claim, stamps = await claimed(hall, "a"), Stamps(hall.kube, SETTINGS)
        assert isinstance(await stamps.stamp(await hall.pod(), claim, "acme", stands=yes), Pod)
        await given_up(hall)
        await hall.queue_gone()
        await hall.store.set_limits("globex", Os.LINUX, Size(64, 128 * 1024), by="test")
        await hall.queue(2, tenant="globex")

        assert isinstance(await hall.poll(), Handed)

    in_hall(play)
