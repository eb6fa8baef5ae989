"""
The runners that forges were asked to register, on PostgreSQL.

Those that are noted at once are written down by one statement. Each waits for its own to be durable: the forge is asked
next, and what it then knows must not be forgotten here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.adapters.postgres.queries import query
from remuda.adapters.postgres.together import Together
from remuda.model.job import Kind
from remuda.ports.registrations import Registration

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from asyncpg import Record

    from remuda.adapters.postgres.pool import Database
    from remuda.ports.clock import Clock


class PostgresRegistrations:
    """Implements ``remuda.ports.registrations.Registrations``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._noting = Together(self._note)

    async def note(self, registration: Registration) -> None:
        await self._noting.ask(registration)

    async def _note(self, some: Sequence[Registration]) -> Sequence[None]:
        now = self._clock.now()
        columns = (
            [r.runner_name for r in some],
            [r.kind.value for r in some],
            [r.tenant for r in some],
            [r.repository for r in some],
            [r.job_id for r in some],
            [r.pod for r in some],
            [r.scope for r in some],
            [r.number for r in some],
            [r.noted_at or now for r in some],
        )
        async with self._database.connection() as c:
            await c.execute(query("note_registrations"), *columns)
        return [None] * len(some)

    async def settle(self, runner_names: Collection[str]) -> int:
        if not runner_names:
            return 0
        async with self._database.connection() as c:
            done = await c.execute(query("settle_registrations"), sorted(runner_names))
        return int(done.rsplit(" ", 1)[1])

    async def unused(self, *, noted_before: datetime, limit: int) -> tuple[Registration, ...]:
        async with self._database.connection() as c:
            rows = await c.fetch(query("unused_registrations"), noted_before, limit)
        return tuple(_registration_of(row) for row in rows)


def _registration_of(row: Record) -> Registration:
    return Registration(
        runner_name=row["runner_name"],
        kind=Kind(row["kind"]),
        tenant=row["tenant"],
        repository=row["repository"],
        job_id=row["job_id"],
        pod=row["pod"],
        scope=row["scope"],
        number=row["number"],
        noted_at=row["noted_at"],
    )
