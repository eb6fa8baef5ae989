"""The runners that forges were asked to register, on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.adapters.postgres.queries import query
from remuda.model.job import Kind
from remuda.ports.registrations import Registration

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from asyncpg import Record

    from remuda.adapters.postgres.pool import Database
    from remuda.ports.clock import Clock


class PostgresRegistrations:
    """Implements ``remuda.ports.registrations.Registrations``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def note(self, registration: Registration) -> None:
        r = registration
        values = (r.runner_name, r.kind.value, r.tenant, r.repository, r.job_id, r.pod, r.scope)
        noted_at = r.noted_at or self._clock.now()
        async with self._database.connection() as c:
            await c.execute(query("note_registration"), *values, r.number, noted_at)

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
