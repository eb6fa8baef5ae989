"""The inbox of the forge's messages on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.adapters.postgres.queries import query
from remuda.ports.deliveries import Delivery

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from remuda.adapters.postgres.pool import Database
    from remuda.ports.clock import Clock


class PostgresDeliveries:
    """Implements ``remuda.ports.deliveries.Deliveries``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def record(self, delivery: Delivery) -> bool:
        values = (delivery.guid, delivery.event, delivery.subject, delivery.body, self._clock.now())
        async with self._database.connection() as c:
            return await c.fetchval(query("record_delivery"), *values) is not None

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
        async with self._database.connection() as c:
            done = await c.execute(query("forget_deliveries"), processed_before)
        return int(done.rsplit(" ", 1)[1])
