"""Messages that come at once are kept by one commit: each sender hears of its own, whatever happens to the others."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

from remuda.adapters.postgres.deliveries import PostgresDeliveries
from remuda.adapters.system import SystemClock
from remuda.ports.database import DatabaseError
from remuda.ports.deliveries import Delivery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.adapters.postgres.pool import Database

LEASE = timedelta(seconds=30)


class CountedDatabase:
    """Counts how often a connection is lent, and can hold those who ask."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.lent = 0
        self.open = asyncio.Event()
        self.open.set()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[object]:
        self.lent += 1
        await self.open.wait()
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


async def test_of_copies_that_come_at_once_exactly_one_is_new(database: Database) -> None:
    inbox = an_inbox(database)
    await inbox.record(a_delivery("old"))

    new = await asyncio.gather(*(inbox.record(a_delivery(g)) for g in ("a", "old", "a", "b", "a")))

    assert new == [True, False, False, True, False]


async def test_large_messages_are_not_all_put_into_one_statement(database: Database) -> None:
    counted = CountedDatabase(database)
    inbox = an_inbox(counted)
    body = b"x" * (1024 * 1024)

    await asyncio.gather(*(inbox.record(a_delivery(f"g{n}", body=body)) for n in range(12)))

    assert counted.lent >= 3
    assert len(await _all(inbox)) == 12


async def test_a_message_that_cannot_be_kept_takes_no_other_with_it(database: Database) -> None:
    inbox = an_inbox(database)
    bad = a_delivery("bad\0guid")

    done = await asyncio.gather(
        *(inbox.record(one) for one in (a_delivery("a"), bad, a_delivery("b"))),
        return_exceptions=True,
    )

    assert [isinstance(one, Exception) for one in done] == [False, True, False]
    assert [d.guid for d in await _all(inbox)] == ["a", "b"]


async def test_whoever_writes_for_all_may_be_cancelled_and_nobody_else_notices(
    database: Database,
) -> None:
    counted = CountedDatabase(database)
    counted.open.clear()
    inbox = an_inbox(counted)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(inbox.record(a_delivery(f"g{n}"))) for n in range(6)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks[0].cancel()  # it writes
        tasks[3].cancel()  # it waits
        await asyncio.sleep(0)
        counted.open.set()

    assert [task.cancelled() for task in tasks] == [True, False, False, True, False, False]
    assert all(task.result() for task in tasks if not task.cancelled())
    kept = {d.guid for d in await _all(inbox)}
    assert {"g1", "g2", "g4", "g5"} <= kept


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


async def test_two_replicas_that_keep_the_same_messages_in_another_order_both_succeed(
    database: Database,
) -> None:
    """Two statements that wait for each other's rows: PostgreSQL ends one of them."""
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
