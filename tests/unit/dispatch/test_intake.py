"""The inbox and those who work it off: durable first, in order for each job, and nobody waits for another's forge."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.dispatch.intake import Intake
from remuda.kube.runner_pool import Forks
from remuda.model.job import JobState
from remuda.ports.database import DatabaseTimeout, DatabaseUnavailable
from remuda.ports.deliveries import Delivery
from remuda.ports.forge import (
    Action,
    Announcement,
    ForgeRefused,
    ForgeThrottled,
    ForgeUnavailable,
    Ignored,
    Rejected,
)
from tests.unit.dispatch.mailroom import Mailroom, a_pool, news, running, story

if TYPE_CHECKING:
    from collections.abc import Mapping

GUARDED = a_pool(forks=Forks.DENY)
DOWN = ForgeUnavailable("No answer", why="it is down", fix="Wait")
FORGED = Rejected(403, "Forged", "the signature is wrong", "Sign it")
UNSIGNED = Rejected(401, "Unsigned", "there is no signature", "Sign it")


class Border:
    """Takes a body for its word. Implements ``Webhooks``."""

    def refuse_unread(self, headers: Mapping[str, str]) -> Rejected | None:
        return None if "signed" in headers else UNSIGNED

    def accept(self, headers: Mapping[str, str], body: bytes) -> Delivery | Ignored | Rejected:
        if headers["signed"] != "rightly":
            return FORGED
        if body == b"ping":
            return Ignored("ping")
        return Delivery(guid=headers["guid"], event="workflow_job", body=body, subject="forge/1")


def an_intake(room: Mailroom) -> tuple[Intake, list[str]]:
    woken: list[str] = []
    intake = Intake(
        Border(),
        room.inbox,
        settings=room.settings.intake,
        metrics=room.metrics,
        wake=lambda: woken.append("woken"),
    )
    return intake, woken


def a_message(guid: str = "g1", signed: str = "rightly") -> dict[str, str]:
    return {"guid": guid, "signed": signed}


# --- What a sender waits for ------------------------------------------------------------------------------------------


@story()
async def test_a_message_is_kept_once_and_wakes_the_workers_once(room: Mailroom) -> None:
    intake, woken = an_intake(room)

    assert intake.refuse_unread(a_message()) is None
    assert await intake.receive(a_message(), b"{}") == "kept"
    assert await intake.receive(a_message(), b"{}") == "duplicate"

    assert await room.inbox.backlog() == 1
    assert woken == ["woken"]
    assert room.counted("webhooks_total", outcome="kept") == 1
    assert room.counted("webhooks_total", outcome="duplicate") == 1


@story()
async def test_what_is_forged_or_nothing_of_ours_is_not_kept(room: Mailroom) -> None:
    intake, woken = an_intake(room)

    assert intake.refuse_unread({}) is UNSIGNED
    assert await intake.receive(a_message(signed="wrongly"), b"{}") is FORGED
    assert await intake.receive(a_message(), b"ping") == "ping"

    assert await room.inbox.backlog() == 0
    assert woken == []
    assert room.counted("webhooks_total", outcome="rejected_401") == 1
    assert room.counted("webhooks_total", outcome="rejected_403") == 1


@story()
async def test_a_message_that_cannot_be_kept_is_an_error_to_its_sender(room: Mailroom) -> None:
    intake, woken = an_intake(room)
    room.inbox.down = True

    with pytest.raises(DatabaseUnavailable):
        await intake.receive(a_message(), b"{}")

    assert woken == []
    assert room.counted("webhooks_total", outcome="not_kept") == 1


@story()
async def test_a_database_that_hangs_is_waited_for_only_so_long(room: Mailroom) -> None:
    intake, _ = an_intake(room)

    async def never(_: Delivery) -> bool:
        await asyncio.Event().wait()
        return True

    room.inbox.record = never  # type: ignore[method-assign,assignment] # a database that hangs
    with pytest.raises(DatabaseTimeout):
        await intake.receive(a_message(), b"{}")
    assert room.clock.monotonic() == room.settings.intake.record_s


# --- Working them off -------------------------------------------------------------------------------------------------


@story()
async def test_a_message_is_worked_off_at_once_when_told_and_soon_when_not(room: Mailroom) -> None:
    workers = room.new_workers()
    async with running(workers.run()):
        await room.clock.sleep(0.25)
        await room.post("g1", news())
        workers.wake()
        await room.clock.sleep(0)
        await asyncio.sleep(0.001)
        assert await room.state(1) is JobState.QUEUED

        await room.post("g2", news(number=2))
        assert await room.state(2) is None
        await room.clock.sleep(room.settings.intake.poll_s)
        assert await room.state(2) is JobState.QUEUED
    assert await room.inbox.backlog() == 0
    assert room.counted("webhooks_total", outcome="enqueued") == 2


@story()
async def test_messages_about_one_job_are_worked_in_order(room: Mailroom) -> None:
    for number, action in enumerate((Action.QUEUED, Action.IN_PROGRESS, Action.COMPLETED)):
        await room.post(f"g{number}", news(action))
    async with running(room.new_workers().run()):
        await room.clock.sleep(0.1)

    assert await room.inbox.backlog() == 0
    assert await room.state() is JobState.COMPLETED


@story()
async def test_an_ignored_message_is_worked_off(room: Mailroom) -> None:
    await room.post("g1", Ignored("installation"))
    async with running(room.new_workers().run()):
        await room.clock.sleep(0.1)
    assert await room.inbox.backlog() == 0
    assert room.counted("webhooks_total", outcome="installation") == 1


@story(GUARDED)
async def test_a_message_whose_forge_fails_is_tried_again_with_growing_waits(
    room: Mailroom,
) -> None:
    room.hub.forks[9001] = DOWN
    await room.post("g1", news())
    async with running(room.new_workers().run()):
        await room.clock.sleep(20)
        assert await room.jobs() == []
        assert 2 <= len(room.hub.asked) <= 4
        room.hub.forks.clear()
        await room.clock.sleep(40)
        assert await room.state() is JobState.QUEUED
    assert await room.inbox.backlog() == 0


@story(GUARDED)
async def test_a_message_that_keeps_failing_is_given_up_and_its_job_not_taken_in(
    room: Mailroom,
) -> None:
    room.hub.forks[9001] = DOWN
    await room.post("g1", news())
    await room.post("g2", news(Action.WAITING))
    async with running(room.new_workers().run()):
        await room.clock.sleep(3600)

    assert await room.jobs() == []
    assert await room.inbox.backlog() == 0
    assert room.counted("webhooks_total", outcome="given_up") == 1
    assert room.counted("webhooks_total", outcome="put_back") == 7
    assert room.counted("webhooks_total", outcome="waiting") == 1


@story()
async def test_a_forge_that_asks_for_a_pause_gets_it(room: Mailroom) -> None:
    room.hub.written[b"g1"] = ForgeThrottled("Too much", why="w", fix="f", retry_after_s=200.0)
    await room.inbox.record(Delivery(guid="g1", event="e", body=b"g1"))
    async with running(room.new_workers().run()):
        await room.clock.sleep(1)
        room.hub.written[b"g1"] = Ignored("ping")
        await room.clock.sleep(198)
        assert await room.inbox.backlog() == 1
        await room.clock.sleep(3)
        assert await room.inbox.backlog() == 0


@story()
async def test_a_message_that_the_forge_refuses_is_not_tried_again(room: Mailroom) -> None:
    await room.post("g1", ForgeRefused("No", why="403", fix="Install the App"))
    async with running(room.new_workers().run()):
        await room.clock.sleep(0.1)
    assert await room.inbox.backlog() == 0
    assert room.counted("webhooks_total", outcome="forge_refused") == 1


@story()
async def test_a_message_that_breaks_its_worker_stops_no_other(room: Mailroom) -> None:
    await room.post("bad", ZeroDivisionError("a bug of ours"))
    await room.post("good", news())
    how = replace(room.settings.intake, attempts_max=2)
    async with running(room.new_workers(how).run()):
        await room.clock.sleep(0.1)
        assert await room.state() is JobState.QUEUED
        await room.clock.sleep(3600)
    assert await room.inbox.backlog() == 0
    assert room.counted("webhooks_total", outcome="given_up") == 1


@story(GUARDED)
async def test_a_hung_forge_holds_up_nothing_but_its_own_jobs(room: Mailroom) -> None:
    """As many tenants as there are workers and more have a forge that hangs; another's messages go through."""
    how = room.settings.intake
    for number in range(how.workers * 3):
        room.hub.hangs.add(9100 + number)
        await room.post(f"hung{number}", news(number=100 + number, tenant=f"t{number}"))
    await room.post("good", news())
    async with running(room.new_workers().run()):
        await room.clock.sleep(how.slow_s * 3 + 0.1)
        assert await room.state() is JobState.QUEUED
        assert len(room.hub.asked) > how.workers


@story(GUARDED)
async def test_a_hung_forge_of_one_tenant_is_asked_for_few_of_its_jobs(room: Mailroom) -> None:
    how = room.settings.intake
    for number in range(300):
        room.hub.hangs.add(9100 + number)
        await room.post(f"hung{number}", news(number=100 + number, tenant="slow"))
    async with running(room.new_workers().run()):
        await room.clock.sleep(how.forge_s + 1)
        assert len(room.hub.asked) <= how.workers + how.slow_max
        await room.post("good", news())
        await room.clock.sleep(how.poll_s + how.slow_s)
        assert await room.state() is JobState.QUEUED


@story(GUARDED)
async def test_with_as_many_slow_as_there_may_be_the_others_wait(room: Mailroom) -> None:
    how = replace(room.settings.intake, workers=2, slow_max=3)
    for number in range(9):
        room.hub.hangs.add(9100 + number)
        await room.post(f"hung{number}", news(number=100 + number, tenant=f"t{number}"))
    async with running(room.new_workers(how).run()):
        await room.clock.sleep(how.forge_s - 0.1)
        assert len(room.hub.asked) == 5
        await room.clock.sleep(3600)
    assert await room.inbox.backlog() == 0


# --- Restarts and outages ---------------------------------------------------------------------------------------------


@story(GUARDED)
async def test_what_is_under_way_at_a_stop_is_handed_back_for_another_at_once(
    room: Mailroom,
) -> None:
    room.hub.hangs.add(9001)
    await room.post("g1", news())
    async with running(room.new_workers().run()):
        await room.clock.sleep(1)
    room.hub.hangs.clear()
    stopped_at = room.clock.monotonic()

    async with running(room.new_workers().run()):
        await room.clock.sleep(0.1)
        assert await room.state() is JobState.QUEUED
    assert room.clock.monotonic() - stopped_at < 1


@story()
async def test_what_a_killed_replica_had_is_taken_after_the_lease(room: Mailroom) -> None:
    await room.post("g1", news())
    how = room.settings.intake
    assert await room.inbox.take(limit=1, lease=how.lease)  # and then it is killed
    async with running(room.new_workers().run()):
        await room.clock.sleep(how.lease.total_seconds() - 1)
        assert await room.jobs() == []
        await room.clock.sleep(1 + how.poll_s)
        assert await room.state() is JobState.QUEUED


@story()
async def test_a_message_that_was_worked_but_not_ticked_off_changes_nothing_the_second_time(
    room: Mailroom,
) -> None:
    await room.post("g1", news())
    async with running(room.new_workers().run()):
        room.inbox.down = False
        taken = await room.inbox.take(limit=1, lease=room.settings.intake.lease)
        assert len(taken) == 1
        said = room.hub.written[b"g1"]
        assert isinstance(said, Announcement)
        await room.apply(said)
        await room.clock.sleep(120)
    assert await room.jobs() == ["forge/1"]
    assert room.counted("webhooks_total", outcome="known") == 1


@story()
async def test_the_workers_outlive_a_database_that_is_down(room: Mailroom) -> None:
    await room.post("g1", news())
    room.inbox.down = True
    async with running(room.new_workers().run()):
        await room.clock.sleep(300)
        assert 10 < room.counted("worker_failures_total", worker="intake") < 100
        room.inbox.down = False
        await room.clock.sleep(11)
        assert await room.state() is JobState.QUEUED
    assert await room.inbox.backlog() == 0


@story()
async def test_nothing_is_taken_before_the_pools_are_known(room: Mailroom) -> None:
    room.pools.synced.clear()
    await room.post("g1", news())
    async with running(room.new_workers().run()):
        await room.clock.sleep(300)
        room.pools.synced.set()
        await room.clock.sleep(0.1)
        assert await room.state() is JobState.QUEUED
    assert room.counted("webhooks_total", outcome="put_back") == 0


@story()
async def test_two_replicas_work_each_message_once(room: Mailroom) -> None:
    for number in range(60):
        await room.post(f"g{number}", news(number=number))
    async with running(room.new_workers().run()), running(room.new_workers().run()):
        await room.clock.sleep(10)
    assert len(await room.jobs()) == 60
    assert room.counted("webhooks_total", outcome="enqueued") == 60
    assert room.counted("webhooks_total", outcome="known") == 0
