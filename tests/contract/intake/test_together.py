"""Messages that come at once are kept by one commit: each sender hears of its own, whatever happens to the others."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.deliveries import PostgresDeliveries
from remuda.adapters.system import SystemClock
from remuda.ports.database import DatabaseConflict, DatabaseError
from remuda.ports.deliveries import Delivery
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from remuda.adapters.postgres.pool import Database

LEASE = timedelta(seconds=30)


class CountedDatabase:
    """Counts how often a connection is lent, and can hold or refuse those who ask, by their number."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.lent = 0
        self.holds: dict[int, asyncio.Event] = {}
        self.fails: dict[int, Exception] = {}

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[object]:
        self.lent += 1
        number = self.lent
        if number in self.holds:
            await self.holds[number].wait()
        if number in self.fails:
            raise self.fails[number]
        async with self._database.connection() as connection:
            yield connection


def an_inbox(database: object) -> PostgresDeliveries:
    return PostgresDeliveries(database, SystemClock())  # type: ignore[arg-type] # the part of it that is used


def a_delivery(guid: str, subject: str = "", body: bytes = b"{}") -> Delivery:
    return Delivery(guid=guid, event="workflow_job", body=body, subject=subject)


async def _all(inbox: PostgresDeliveries) -> list[Delivery]:
    return list(await inbox.take(limit=10_000, lease=LEASE))


async def test_a_burst_costs_few_commits_and_all_of_it_is_kept_in_order(
    database: Database,
) -> None:
    counted = CountedDatabase(database)
    inbox = an_inbox(counted)
    guids = [f"g{number:03}" for number in range(500)]

    new = await asyncio.gather(*(inbox.record(a_delivery(guid)) for guid in guids))

    assert all(new)
    assert counted.lent <= 10
    assert [d.guid for d in await _all(inbox)] == guids


@contextlib.asynccontextmanager
async def _in_one_statement(
    counted: CountedDatabase, inbox: PostgresDeliveries, *deliveries: Delivery
) -> AsyncIterator[list[asyncio.Task[bool]]]:
    """Let messages wait for one that is being written, so that the next statement has all of them."""
    held = counted.holds[counted.lent + 1] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(inbox.record(a_delivery("first")))
        await _a_moment()
        tasks = [group.create_task(inbox.record(one)) for one in deliveries]
        await _a_moment()
        held.set()
        yield tasks


def _lent(counted: CountedDatabase) -> Callable[[], Awaitable[int]]:
    async def lent() -> int:
        return counted.lent

    return lent


async def _a_moment() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_of_copies_that_come_at_once_exactly_one_is_new(database: Database) -> None:
    counted = CountedDatabase(database)
    inbox = an_inbox(counted)
    await inbox.record(a_delivery("old"))

    copies = [a_delivery(guid) for guid in ("a", "old", "a", "b", "a")]
    async with _in_one_statement(counted, inbox, *copies) as tasks:
        pass

    assert [task.result() for task in tasks] == [True, False, False, True, False]
    assert counted.lent == 3


async def test_large_messages_are_not_all_put_into_one_statement(database: Database) -> None:
    counted = CountedDatabase(database)
    inbox = an_inbox(counted)
    body = b"x" * (1024 * 1024)

    await asyncio.gather(*(inbox.record(a_delivery(f"g{n}", body=body)) for n in range(12)))

    assert counted.lent >= 3
    assert len(await _all(inbox)) == 12


async def test_a_message_that_cannot_be_kept_takes_no_other_with_it(database: Database) -> None:
    counted = CountedDatabase(database)
    inbox = an_inbox(counted)
    bad = a_delivery("bad\0guid")

    async def refused() -> None:
        with pytest.raises(Exception, match="0x00"):
            await inbox.record(bad)

    async with _in_one_statement(counted, inbox, a_delivery("a"), a_delivery("b")) as tasks:
        await refused()

    assert all(task.result() for task in tasks)
    assert [d.guid for d in await _all(inbox)] == ["first", "a", "b"]


async def test_whoever_writes_for_all_may_be_cancelled_and_nobody_else_notices(
    database: Database,
) -> None:
    counted = CountedDatabase(database)
    inbox = an_inbox(counted)
    waiting = [a_delivery(f"g{n}") for n in range(6)]
    held = counted.holds[2] = asyncio.Event()
    async with _in_one_statement(counted, inbox, *waiting) as tasks:
        await eventually(_lent(counted), lambda lent: lent == 2)
        tasks[0].cancel()  # it writes for all of them
        tasks[3].cancel()  # it waits
        await _a_moment()
        held.set()

    assert [task.cancelled() for task in tasks] == [True, False, False, True, False, False]
    assert all(task.result() for task in tasks if not task.cancelled())
    kept = [d.guid for d in await _all(inbox)]
    assert {"g1", "g2", "g4", "g5"} <= set(kept)


async def test_each_sender_hears_of_a_database_that_failed(database: Database) -> None:
    inbox = an_inbox(database)
    async with database.connection() as connection:
        await connection.execute("ALTER TABLE deliveries RENAME TO away")
    done = await asyncio.gather(
        *(inbox.record(a_delivery(f"g{n}")) for n in range(5)), return_exceptions=True
    )
    assert all(isinstance(one, DatabaseError) for one in done), done
    async with database.connection() as connection:
        await connection.execute("ALTER TABLE away RENAME TO deliveries")
    assert await inbox.record(a_delivery("g1"))


async def test_messages_that_stood_in_another_replicas_way_are_tried_one_by_one(
    database: Database,
) -> None:
    """Two replicas keep copies of the same messages in another order: PostgreSQL ends one of the statements."""
    counted = CountedDatabase(database)
    inbox = an_inbox(counted)
    counted.fails[2] = DatabaseConflict("Deadlock", why="the other went first", fix="Again")
    async with _in_one_statement(counted, inbox, *(a_delivery(g) for g in "abc")) as tasks:
        pass

    assert all(task.result() for task in tasks)
    assert [d.guid for d in await _all(inbox)] == ["first", "a", "b", "c"]


async def test_two_replicas_that_keep_the_same_messages_at_once_both_succeed(
    database: Database,
) -> None:
    first, second = an_inbox(database), an_inbox(database)
    for turn in range(5):
        guids = [f"{turn}-{number}" for number in range(80)]
        new = await asyncio.gather(
            *(first.record(a_delivery(guid)) for guid in guids),
            *(second.record(a_delivery(guid)) for guid in reversed(guids)),
        )
        assert sum(new) == len(guids)


async def test_all_that_is_old_is_forgotten_however_much_it_is(database: Database) -> None:
    inbox = an_inbox(database)
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO deliveries (guid, event, subject, received_at, processed_at, outcome)"
            " SELECT n::text, 'e', '', now(), now() - interval '5 days', 'done'"
            " FROM generate_series(1, $1::int) n",
            12_001,
        )
    await inbox.record(a_delivery("new"))

    forgotten = await inbox.forget(processed_before=SystemClock().now() - timedelta(days=4))

    assert forgotten == 12_001
    assert await inbox.backlog() == 1
