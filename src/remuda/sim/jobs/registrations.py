"""The runners that forges were asked to register, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from remuda.ports.registrations import Registration
    from remuda.sim.jobs.tables import Tables


class MemoryRegistrations:
    """Implements ``remuda.ports.registrations.Registrations``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def note(self, registration: Registration) -> None:
        kept = self._tables.registrations
        name, scope, number = registration.runner_name, registration.scope, registration.number
        if name in kept:
            kept[name] = replace(kept[name], scope=scope, number=number)
            return
        noted_at = registration.noted_at or self._tables.clock.now()
        kept[name] = replace(registration, noted_at=noted_at)

    async def settle(self, runner_names: Collection[str]) -> int:
        gone = [self._tables.registrations.pop(name, None) for name in set(runner_names)]
        return sum(one is not None for one in gone)

    async def unused(self, *, noted_before: datetime, limit: int) -> tuple[Registration, ...]:
        found = [
            (r.noted_at, r.runner_name, r)
            for r in self._tables.registrations.values()
            if r.noted_at is not None and r.noted_at < noted_before and not self._in_use(r)
        ]
        return tuple(r for _, _, r in sorted(found, key=lambda one: one[:2])[:limit])

    def _in_use(self, registration: Registration) -> bool:
        name = registration.runner_name
        live = self._tables.claims.get(registration.pod)
        # A claim that nothing was handed out for yet may be the one that this runner is for.
        if live is not None and live.runner_name in {"", name}:
            return True
        return any(
            (session.tenant, session.runner_name) == (registration.tenant, name)
            and session.ended_at is None
            for session in self._tables.sessions.values()
        )
