"""Pods with an owner that nothing stands behind: given back, deleted, or never touched."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.workers.stamped_pods import StampedPods
from remuda.kube.core import POD
from remuda.model.job import JobState
from remuda.ports.database import DatabaseTimeout
from remuda.ports.jobs import JobEnd, PodEnd, Release, Released
from remuda.ports.kube import Unavailable
from tests.unit.dispatch.yard import SPACE, story
from tests.unit.pools.ranch import Hurt

if TYPE_CHECKING:
    from remuda.kube.patches import JsonValue
    from tests.unit.dispatch.yard import Yard

LONG = 330.0
"""More than the age and the time in sight that it takes."""
POLLED: JsonValue = {"name": "poller", "state": {"terminated": {"exitCode": 0}}}
POLLS: JsonValue = {"name": "poller", "state": {"running": {}}}


async def aged(yard: Yard, *names: str, warm: bool = True, poller: bool = False) -> StampedPods:
    for name in names:
        await (yard.warm_pod(name, poller=poller) if warm else yard.add_pod(name, poller=poller))
        await yard.stamp(name)
    await yard.later(1)
    return StampedPods(yard.parts)


# --- Given back -------------------------------------------------------------------------------------------------------


@story()
async def test_a_warm_runner_whose_claim_is_gone_serves_again(yard: Yard) -> None:
    worker = await aged(yard, "p")

    await yard.turns(worker, LONG)

    assert await yard.is_there("p")
    assert not await yard.is_stamped("p")
    assert yard.mended("orphaned_stamped_pod") == 1
    await yard.queue(1)
    await yard.take("p")


@story()
async def test_a_poller_that_still_waits_serves_again(yard: Yard) -> None:
    worker = await aged(yard, "p", poller=True)
    await yard.status("p", initContainerStatuses=[POLLS])

    await yard.turns(worker, LONG)

    assert not await yard.is_stamped("p")


@story()
async def test_a_stamp_that_comes_in_between_wins_over_the_giving_back(yard: Yard) -> None:
    worker = await aged(yard, "p")
    await yard.queue(1)

    async def stamp(_said: str) -> None:
        yard.tap.before = None
        await yard.stamp("p", await yard.take("p"))

    yard.tap.before = stamp
    await yard.turns(worker, LONG)

    assert await yard.is_stamped("p")
    assert yard.state(1) is JobState.CLAIMED


# --- Deleted ----------------------------------------------------------------------------------------------------------


@story()
async def test_one_that_is_of_no_use_goes_and_its_account_is_left_to_the_operator(
    yard: Yard,
) -> None:
    """Until the Pod is gone its agent speaks with its token: without the account nobody would hear its last words."""
    worker = await aged(yard, "p", warm=False)

    await yard.turns(worker, LONG)

    assert not await yard.is_there("p")
    assert await yard.accounts() == ["p"]
    assert yard.tap.of("DELETE .*/serviceaccounts/") == []


@story()
async def test_a_poller_that_never_came_up_goes(yard: Yard) -> None:
    worker = await aged(yard, "p", warm=False, poller=True)
    await yard.status("p", initContainerStatuses=[{"name": "poller", "state": {"waiting": {}}}])

    await yard.turns(worker, LONG)

    assert not await yard.is_there("p")


@story()
async def test_a_stamp_that_comes_in_between_wins_over_the_delete(yard: Yard) -> None:
    worker = await aged(yard, "p", warm=False)
    await yard.queue(1)

    async def stamp(_said: str) -> None:
        yard.tap.before = None
        await yard.stamp("p", await yard.take("p"))

    yard.tap.before = stamp
    await yard.turns(worker, LONG)

    assert await yard.is_there("p")
    assert await yard.accounts() == ["p"]


@story()
async def test_one_that_is_gone_already_is_mended_all_the_same(yard: Yard) -> None:
    worker = await aged(yard, "p", warm=False)

    async def vanish(said: str) -> None:
        if said.startswith("DELETE") and "/pods/" in said:
            yard.tap.before = None
            await yard.kube.delete(POD, "p", namespace=SPACE, grace_s=0)

    yard.tap.before = vanish
    await yard.turns(worker, LONG)

    assert not await yard.is_there("p")
    assert yard.mended("orphaned_stamped_pod") == 1


@story()
async def test_a_pool_is_not_emptied_in_one_turn(yard: Yard) -> None:
    worker = await aged(yard, *(f"p{n}" for n in range(8)), warm=False)
    await yard.turns(worker, 290)

    while len(yard.tap.of("DELETE .*/pods/")) == 0:
        await yard.later(await worker.tick())

    assert len(yard.tap.of("DELETE .*/pods/")) == 2


@story()
async def test_twenty_eight_leaked_runners_are_given_back_within_a_sweep_or_two(yard: Yard) -> None:
    names = [f"p{n}" for n in range(28)]
    worker = await aged(yard, *names)

    await yard.turns(worker, LONG)

    assert [name for name in names if await yard.is_stamped(name)] == []


@story()
async def test_while_the_forge_fails_nothing_is_deleted(yard: Yard) -> None:
    worker = await aged(yard, "p", warm=False)
    for number in range(1, 5):
        await yard.queue(number)
        await yard.warm_pod(f"q{number}")
        until = yard.clock.now() + timedelta(hours=1)
        held = Release(by="test", why="mint failed", undelivered=True, hold_until=until)
        released = await yard.jobs.release(await yard.take(f"q{number}"), held)
        assert isinstance(released, Released)

    await yard.turns(worker, LONG)
    assert await yard.is_there("p")

    await yard.later(3600)
    await yard.turns(worker, LONG)
    assert not await yard.is_there("p")


@story()
async def test_one_tenant_whose_jobs_are_refused_for_ever_keeps_no_broken_runner_alive(
    yard: Yard,
) -> None:
    """Its jobs are held back again and again, day and night: that is no outage, and a zombie pins its room."""
    worker = await aged(yard, "p", warm=False)
    for number in range(1, 6):
        await yard.queue(number)
        await yard.warm_pod(f"q{number}")
        until = yard.clock.now() + timedelta(days=1)
        held = Release(by="test", why="mint refused", undelivered=True, hold_until=until)
        assert isinstance(await yard.jobs.release(await yard.take(f"q{number}"), held), Released)

    await yard.turns(worker, 2400)

    assert not await yard.is_there("p")


# --- Never touched ----------------------------------------------------------------------------------------------------


@story()
async def test_one_with_a_claim_is_kept(yard: Yard) -> None:
    await yard.queue(1)
    worker = await aged(yard, "p", warm=False)
    await yard.take("p")

    await yard.turns(worker, 3600)

    assert await yard.is_there("p")
    assert await yard.is_stamped("p")


@story()
async def test_one_with_an_open_session_is_kept_although_its_claim_ended(yard: Yard) -> None:
    await yard.queue(1)
    worker = await aged(yard, "p", warm=False)
    claim = await yard.deliver("p")
    await yard.jobs.release(claim, Release(by="test", why="nobody took it up"))

    await yard.turns(worker, 3600)

    assert await yard.is_there("p")


@story()
async def test_one_that_says_itself_that_a_job_reached_it_is_kept_with_nothing_on_the_books(
    yard: Yard,
) -> None:
    """The incident: the reaper killed live jobs, because the books had lost them."""
    worker = await aged(yard, "p", warm=False)
    await yard.status("p", conditions=[{"type": "remuda.dev/JobDelivered", "status": "True"}])

    await yard.turns(worker, 3600)

    assert await yard.is_there("p")


@pytest.mark.parametrize("status", ["Unknown", "True"])
def test_a_delivery_that_is_not_denied_counts(status: str) -> None:
    @story()
    async def play(yard: Yard) -> None:
        worker = await aged(yard, "p")
        delivered: JsonValue = {"type": "remuda.dev/JobDelivered", "status": status}
        await yard.status("p", conditions=[{"type": "Ready", "status": "True"}, delivered])

        await yard.turns(worker, LONG)

        assert await yard.is_stamped("p")

    play()


@story()
async def test_one_whose_poller_ended_is_kept(yard: Yard) -> None:
    worker = await aged(yard, "p", poller=True)
    await yard.status("p", initContainerStatuses=[POLLED])

    await yard.turns(worker, 3600)

    assert await yard.is_there("p")
    assert await yard.is_stamped("p")


@story()
async def test_one_that_was_handed_a_job_is_kept_although_its_session_was_closed_by_mistake(
    yard: Yard,
) -> None:
    await yard.queue(1)
    worker = await aged(yard, "p", warm=False)
    await yard.deliver("p")
    await yard.jobs.stop_pod(PodEnd(pod="p", ended_at=yard.clock.now(), by="half a list"))

    await yard.turns(worker, 3600)
    assert await yard.is_there("p"), "its job may run"

    end = JobEnd(
        job_id="forge/1",
        tenant="acme",
        conclusion="success",
        ended_at=yard.clock.now(),
        by="test",
        runner_name="r-p",
    )
    await yard.jobs.complete(end)
    await yard.turns(worker, LONG)
    assert not await yard.is_there("p"), "its job is over, and it stays for nothing"


@story()
async def test_young_ones_are_kept(yard: Yard) -> None:
    worker = await aged(yard, "p", warm=False)

    await yard.turns(worker, 285)

    assert await yard.is_there("p")


@story()
async def test_an_old_one_is_kept_until_it_has_been_seen_so_for_long_enough(yard: Yard) -> None:
    await yard.add_pod("p")
    await yard.later(3600)
    worker = await aged(yard)
    await yard.stamp("p")

    await yard.turns(worker, 285)

    assert await yard.is_there("p")


@story()
async def test_a_new_stamp_gets_the_whole_grace(yard: Yard) -> None:
    await yard.queue(1)
    worker = await aged(yard, "p", warm=False)
    await yard.turns(worker, 285)
    claim = await yard.take("p")
    await yard.stamp("p", claim)
    await yard.jobs.release(claim, Release(by="test", why="mint failed", undelivered=True))

    await yard.turns(worker, 285)

    assert await yard.is_there("p")


@story()
async def test_a_worker_that_was_paused_for_a_minute_begins_its_grace_anew(yard: Yard) -> None:
    worker = await aged(yard, "p", warm=False)
    await yard.turns(worker, 290)
    await yard.later(61)

    await worker.tick()
    assert await yard.is_there("p")


@story()
async def test_one_that_ended_or_is_being_deleted_is_the_operators(yard: Yard) -> None:
    worker = await aged(yard, "p", warm=False)
    await yard.status("p", phase="Succeeded")

    await yard.turns(worker, 3600)

    assert yard.tap.of("DELETE") == []


@story()
async def test_a_claim_made_after_the_pods_were_listed_saves_its_pod(yard: Yard) -> None:
    await yard.queue(1)
    worker = await aged(yard, "p", warm=False)
    await yard.turns(worker, 290)
    read = yard.parts.kube.list

    async def then_a_poll(*what: object) -> object:
        found: object = await read(*what)  # type: ignore[arg-type]
        if not yard.tables.claims:
            await yard.take("p")
        return found

    yard.parts.kube.list = then_a_poll  # type: ignore[method-assign,assignment]
    await yard.turns(worker, 60)

    assert await yard.is_there("p")


@story()
async def test_a_claim_made_while_it_thought_about_another_pod_saves_its_pod(yard: Yard) -> None:
    """The fresh look at each Pod, right before the act."""
    await yard.queue(1)
    worker = await aged(yard, "p", warm=False)
    await yard.turns(worker, 290)
    read = yard.views.occupied_pods

    async def then_a_poll() -> frozenset[str]:
        found = await read()
        if not yard.tables.claims:
            await yard.take("p")
        return found

    yard.views.occupied_pods = then_a_poll  # type: ignore[method-assign]
    await yard.turns(worker, 60)

    assert await yard.is_there("p")


@story()
async def test_an_open_session_that_the_first_read_missed_saves_its_pod_through_its_teardown(
    yard: Yard,
) -> None:
    await yard.queue(1)
    worker = await aged(yard, "p", warm=False)
    await yard.deliver("p")
    end = JobEnd(
        job_id="forge/1",
        tenant="acme",
        conclusion="success",
        ended_at=yard.clock.now(),
        by="test",
        runner_name="r-p",
    )
    await yard.jobs.complete(end)

    async def nobody() -> frozenset[str]:
        return frozenset()

    yard.views.occupied_pods = nobody  # type: ignore[method-assign]
    await yard.turns(worker, LONG)

    assert await yard.is_there("p")


@story()
async def test_a_list_that_fails_deletes_nothing(yard: Yard) -> None:
    worker = await aged(yard, "p", warm=False)
    await yard.turns(worker, 290)
    yard.tap.hurts.append(Hurt("GET .*/pods$", "dropped"))

    with pytest.raises(Unavailable):
        await worker.tick()

    assert yard.tap.of("DELETE") == []


@story()
async def test_books_that_cannot_be_read_delete_nothing(yard: Yard) -> None:
    worker = await aged(yard, "p", warm=False)
    await yard.turns(worker, 290)
    yard.views.fails = "occupied_pods"

    with pytest.raises(DatabaseTimeout):
        await yard.turns(worker, 60)

    assert yard.tap.of("DELETE") == []


@story()
async def test_one_that_cannot_be_deleted_stops_no_other(yard: Yard) -> None:
    worker = await aged(yard, "a", warm=False)
    for name in ("b", *(f"w{n}" for n in range(8))):
        await yard.add_pod(name)
    await yard.stamp("b")
    yard.tap.hurts.append(Hurt("DELETE .*/pods/a$", "refused", times=99))

    await yard.turns(worker, LONG)

    assert await yard.is_there("a")
    assert not await yard.is_there("b")
