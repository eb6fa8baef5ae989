"""Claims that outlived their job, registrations that nobody used, and what is long over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.workers.completed_claims import CompletedClaims
from remuda.dispatch.workers.retention import Retention
from remuda.dispatch.workers.unused_registrations import UnusedRegistrations
from remuda.model.job import JobState
from remuda.ports.deliveries import Delivery
from remuda.ports.forge import ForgeRefused, ForgeThrottled, Removal, Scope
from remuda.ports.jobs import JobEnd
from tests.unit.dispatch.yard import SETTINGS, down, story

if TYPE_CHECKING:
    from tests.unit.dispatch.yard import Yard


def refused() -> ForgeRefused:
    return ForgeRefused("No", why="404", fix="Install it", scope=Scope.TENANT)


async def end(yard: Yard, number: int, runner: str = "") -> None:
    await yard.jobs.complete(
        JobEnd(
            job_id=f"forge/{number}",
            tenant="acme",
            conclusion="cancelled",
            ended_at=yard.clock.now(),
            by="test",
            runner_name=runner,
        )
    )


# --- Claims -----------------------------------------------------------------------------------------------------------


async def outlived(yard: Yard) -> CompletedClaims:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.deliver("p")
    await end(yard, 1)  # cancelled while queued: nobody ran it
    assert "p" in yard.tables.claims
    return CompletedClaims(yard.parts)


@story()
async def test_a_claim_whose_job_is_over_ends_after_its_grace(yard: Yard) -> None:
    worker = await outlived(yard)

    await yard.turns(worker, 355)
    assert "p" in yard.tables.claims, "its runner may be given a sibling"

    await yard.turns(worker, 30)
    assert yard.tables.claims == {}
    assert yard.state(1) is JobState.CANCELLED
    assert yard.session("p").ended_at is None, "its Pod is there: nobody may take it"
    assert yard.mended("completed_claim") == 1


@story()
async def test_a_claim_that_moved_to_a_sibling_is_kept_until_that_one_is_over(yard: Yard) -> None:
    worker = await outlived(yard)
    await yard.turns(worker, 200)
    await yard.queue(2)
    await yard.executes(2, "r-p")

    await yard.turns(worker, 600)

    assert yard.tables.claims["p"].claim.job_id == "forge/2"


@story()
async def test_a_claim_that_moved_between_the_look_and_the_release_is_kept(yard: Yard) -> None:
    worker = await outlived(yard)
    (old,) = await yard.parts.views.claims()
    await yard.queue(2)
    await yard.executes(2, "r-p")

    await worker._release(old)  # noqa: SLF001 - what it does with what it saw before

    assert yard.tables.claims["p"].claim.job_id == "forge/2"


@story()
async def test_a_claim_whose_job_runs_is_kept(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.deliver("p")

    await yard.turns(CompletedClaims(yard.parts), 3600)

    assert "p" in yard.tables.claims


# --- Registrations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        pytest.param(Removal.REMOVED, 0, id="it is removed, and forgotten"),
        pytest.param(Removal.GONE, 0, id="it was gone, and is forgotten"),
        pytest.param(Removal.BUSY, 1, id="it executes a job: it is left alone"),
        pytest.param(down(), 1, id="the forge does not answer: it is tried again"),
    ],
)
def test_an_unused_registration(answer: Removal | Exception, left: int) -> None:
    @story()
    async def play(yard: Yard) -> None:
        await yard.note()
        yard.forge.removals["r-p"] = answer
        await yard.later(301)

        await UnusedRegistrations(yard.parts).tick()

        assert yard.forge.removed == ["r-p"]
        assert len(yard.tables.registrations) == left
        assert yard.mended("unused_registration") == 1 - left

    play()


@story()
async def test_a_registration_with_a_claim_or_an_open_session_behind_it_is_left(yard: Yard) -> None:
    await yard.queue(1)
    await yard.warm_pod("p")
    await yard.deliver("p")
    await yard.note()
    await yard.later(3600)

    await UnusedRegistrations(yard.parts).tick()

    assert yard.forge.removed == []


@story()
async def test_a_young_registration_is_left(yard: Yard) -> None:
    await yard.note()
    await yard.later(299)

    await UnusedRegistrations(yard.parts).tick()

    assert yard.forge.removed == []


@story()
async def test_one_tenant_that_is_throttled_stops_no_other(yard: Yard) -> None:
    wait = ForgeThrottled("Too much", why="429", fix="Wait", retry_after_s=300.0)
    for name, tenant in (("a", "acme"), ("b", "beta")):
        await yard.note(name, tenant)
    yard.forge.removals["a"] = wait
    worker = UnusedRegistrations(yard.parts)
    await yard.later(301)

    await worker.tick()
    await worker.tick()

    assert yard.forge.removed == ["a", "b"], "it is not asked again before its time"
    assert list(yard.tables.registrations) == ["a"]


@story()
async def test_registrations_that_cannot_be_removed_stand_in_nobodys_way(yard: Yard) -> None:
    """A tenant took our App away: its forge refuses for ever, and its rows are the oldest."""
    for number in range(SETTINGS.recovery.actions_max + 5):
        await yard.note(f"a{number}", "acme")
        yard.forge.removals[f"a{number}"] = refused()
    await yard.later(1)
    await yard.note("b", "beta")
    await yard.later(301)

    await yard.turns(UnusedRegistrations(yard.parts), 90)

    assert "b" not in yard.tables.registrations


@story()
async def test_a_registration_that_a_forge_refuses_to_remove_for_days_is_forgotten(
    yard: Yard,
) -> None:
    await yard.note()
    yard.forge.removals["r-p"] = refused()
    worker = UnusedRegistrations(yard.parts)

    await yard.turns(worker, timedelta(days=1.9).total_seconds())
    assert list(yard.tables.registrations) == ["r-p"]
    assert len(yard.forge.removed) < 100

    await yard.turns(worker, timedelta(days=0.2).total_seconds())
    assert yard.tables.registrations == {}, "no forge keeps one that nobody used for so long"


# --- Retention --------------------------------------------------------------------------------------------------------


SHORT = replace(SETTINGS.recovery, keep_over=timedelta(days=5))


@story(replace(SETTINGS, recovery=SHORT))
async def test_what_is_long_over_is_forgotten_and_nothing_else(yard: Yard) -> None:
    await yard.queue(1, 2)
    await end(yard, 1)
    await yard.parts.deliveries.record(Delivery(guid="g", event="workflow_job", body=b"{}"))
    await yard.parts.deliveries.processed("g", "done")
    await yard.later(timedelta(days=6).total_seconds())
    await yard.queue(3)
    await end(yard, 3)

    assert await Retention(yard.parts).tick() == 3600.0

    assert sorted(yard.tables.jobs) == ["forge/2", "forge/3"]
    assert await yard.parts.deliveries.record(Delivery(guid="g", event="workflow_job", body=b"{}"))
