"""
The inbox of the forge's messages on PostgreSQL.

Messages that come at once are kept by one statement and so by one commit: a burst costs few of them. Each sender still
waits for its own to be durable.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.adapters.postgres.queries import query
from remuda.ports.database import DatabaseConflict, DatabaseError
from remuda.ports.deliveries import Delivery

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from remuda.adapters.postgres.pool import Database
    from remuda.ports.clock import Clock

_TOGETHER_MAX: Final = 100
_TOGETHER_MAX_BYTES: Final = 4 * 1024 * 1024
_FORGET_MAX: Final = 5_000


@dataclass(eq=False, slots=True)
class _Waiting:
    """A message that is to be kept, and whoever waits for that."""

    delivery: Delivery
    done: asyncio.Future[bool] = field(default_factory=asyncio.Future)


class PostgresDeliveries:
    """Implements ``remuda.ports.deliveries.Deliveries``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: list[_Waiting] = []
        self._turn = asyncio.Lock()

    async def record(self, delivery: Delivery) -> bool:
        mine = _Waiting(delivery)
        self._waiting.append(mine)
        try:
            async with self._turn:  # whoever has it writes for all that wait
                while not mine.done.done():
                    await self._record_some()
            return mine.done.result()
        finally:
            if mine in self._waiting:
                self._waiting.remove(mine)

    async def _record_some(self) -> None:
        some = self._some()
        try:
            if not await self._record_together(some):
                for one in some:
                    await self._record_together([one])
        except asyncio.CancelledError:
            # Whether the rest is kept is unknown: whoever is next writes it again, which changes nothing.
            self._waiting[:0] = [one for one in some if not one.done.done()]
            raise

    def _some(self) -> list[_Waiting]:
        count, size = 0, 0
        for one in self._waiting[:_TOGETHER_MAX]:
            size += len(one.delivery.body)
            if count and size > _TOGETHER_MAX_BYTES:
                break
            count += 1
        some, self._waiting[:count] = self._waiting[:count], []
        return some

    async def _record_together(self, some: Sequence[_Waiting]) -> bool:
        """Keep some messages with one statement and tell who waits. False: each must be tried on its own."""
        try:
            news = await self._insert([one.delivery for one in some])
        except Exception as error:  # noqa: BLE001 - told to each that waits for it
            # One of them may be to blame; or another replica keeps copies of the same, in another order.
            theirs = isinstance(error, DatabaseError) and not isinstance(error, DatabaseConflict)
            if len(some) > 1 and not theirs:
                return False
            _fail(some, error)
        else:
            _answer(some, news)
        return True

    async def _insert(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Keep messages with one statement; return the GUIDs of those that are new."""
        columns = (
            [d.guid for d in deliveries],
            [d.event for d in deliveries],
            [d.subject for d in deliveries],
            [d.body for d in deliveries],
        )
        async with self._database.connection() as c:
            rows = await c.fetch(query("record_deliveries"), *columns, self._clock.now())
        return {row["guid"] for row in rows}

    async def take(self, *, limit: int, lease: timedelta) -> tuple[Delivery, ...]:
        now = self._clock.now()
        async with self._database.connection() as c:
            rows = await c.fetch(query("take_deliveries"), now, now + lease, limit)
        in_order = sorted(rows, key=lambda row: int(row["number"]))
        return tuple(
            Delivery(
                guid=row["guid"],
                event=row["event"],
                body=row["body"],
                subject=row["subject"],
                attempts=row["attempts"],
                received_at=row["received_at"],
            )
            for row in in_order
        )

    async def processed(self, guid: str, outcome: str) -> bool:
        values = (guid, self._clock.now(), outcome)
        async with self._database.connection() as c:
            return await c.fetchval(query("process_delivery"), *values) is not None

    async def put_back(self, guid: str, *, retry_at: datetime) -> bool:
        async with self._database.connection() as c:
            return await c.fetchval(query("put_back_delivery"), guid, retry_at) is not None

    async def backlog(self) -> int:
        async with self._database.connection() as c:
            return int(await c.fetchval(query("count_backlog")))

    async def forget(self, *, processed_before: datetime) -> int:
        forgotten = 0
        while True:
            async with self._database.connection() as c:
                done = await c.execute(query("forget_deliveries"), processed_before, _FORGET_MAX)
            count = int(done.rsplit(" ", 1)[1])
            forgotten += count
            if count < _FORGET_MAX:
                return forgotten


def _answer(some: Sequence[_Waiting], news: set[str]) -> None:
    for one in some:
        guid = one.delivery.guid
        if not one.done.done():
            one.done.set_result(guid in news)
        news.discard(guid)  # of two copies that came at once, one is new


def _fail(some: Sequence[_Waiting], error: Exception) -> None:
    for one in some:
        if not one.done.done():
            one.done.set_exception(error)
            one.done.exception()  # whoever waited may be gone: then nobody asks
