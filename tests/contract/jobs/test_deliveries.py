"""The forge's messages: kept before they are answered, worked once, in order for each job."""

from __future__ import annotations

from datetime import timedelta

from remuda.ports.deliveries import Delivery
from tests.support.jobs import START, Store

LEASE = timedelta(seconds=30)


def a_delivery(guid: str, subject: str = "") -> Delivery:
    return Delivery(guid=guid, event="workflow_job", body=b'{"n": "\xff"}', subject=subject)


async def _taken(store: Store, limit: int = 10) -> list[str]:
    return [d.guid for d in await store.deliveries.take(limit=limit, lease=LEASE)]


async def test_a_message_is_kept_byte_for_byte(store: Store) -> None:
    assert await store.deliveries.record(a_delivery("1", "forge/1"))
    (taken,) = await store.deliveries.take(limit=10, lease=LEASE)
    assert taken == Delivery(
        guid="1",
        event="workflow_job",
        body=b'{"n": "\xff"}',
        subject="forge/1",
        attempts=1,
        received_at=START,
    )


async def test_a_guid_is_taken_once_also_after_it_was_worked_off(store: Store) -> None:
    assert await store.deliveries.record(a_delivery("1"))
    assert not await store.deliveries.record(a_delivery("1"))
    assert await store.deliveries.processed("1", "enqueued")
    assert not await store.deliveries.record(a_delivery("1"))
    assert not await store.deliveries.processed("1", "enqueued")
    assert await _taken(store) == []


async def test_a_message_that_is_worked_on_goes_to_nobody_else_until_its_lease_ends(
    store: Store,
) -> None:
    await store.deliveries.record(a_delivery("1"))
    assert await _taken(store) == ["1"]
    assert await _taken(store) == []
    store.clock.forward(30)
    (again,) = await store.deliveries.take(limit=10, lease=LEASE)
    assert again.attempts == 2
    assert await store.deliveries.backlog() == 1


async def test_messages_about_one_job_are_worked_one_after_the_other(store: Store) -> None:
    for guid, subject in [("1", "x"), ("2", "x"), ("3", "y"), ("4", ""), ("5", "")]:
        await store.deliveries.record(a_delivery(guid, subject))
    assert await _taken(store) == ["1", "3", "4", "5"]
    await store.deliveries.processed("3", "ok")
    assert await _taken(store) == []
    await store.deliveries.processed("1", "ok")
    assert await _taken(store) == ["2"]


async def test_a_message_that_failed_waits_and_those_behind_it_too(store: Store) -> None:
    await store.deliveries.record(a_delivery("1", "x"))
    await store.deliveries.record(a_delivery("2", "x"))
    await _taken(store)
    assert await store.deliveries.put_back("1", retry_at=START + timedelta(minutes=5))
    store.clock.forward(60)
    assert await _taken(store) == []
    store.clock.forward(240)
    assert await _taken(store) == ["1"]
    assert not await store.deliveries.put_back("unknown", retry_at=START)


async def test_the_oldest_messages_are_taken_first(store: Store) -> None:
    for guid in ("c", "a", "b"):
        await store.deliveries.record(a_delivery(guid))
    assert await _taken(store, limit=2) == ["c", "a"]
    assert await _taken(store, limit=2) == ["b"]


async def test_what_was_worked_off_long_ago_is_forgotten_and_nothing_else(store: Store) -> None:
    for guid in ("done", "late", "open"):
        await store.deliveries.record(a_delivery(guid))
    await store.deliveries.processed("done", "ok")
    store.clock.forward(100)
    await store.deliveries.processed("late", "ok")
    before = START + timedelta(seconds=50)
    assert await store.deliveries.forget(processed_before=before) == 1
    assert await store.deliveries.record(a_delivery("done"))
    assert not await store.deliveries.record(a_delivery("late"))
    assert await store.deliveries.backlog() == 2
