"""Registrations at a forge that nothing stands behind: removed, so that no dead runner of ours is left there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from remuda.control.backoff import Backoff
from remuda.dispatch.workers.turning import each
from remuda.ports.forge import ForgeError, ForgeRefused, ForgeThrottled, Removal

if TYPE_CHECKING:
    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.ports.registrations import Registration

log = structlog.get_logger(__name__)

NAME: Final = "unused-registrations"
_TICKS: Final = 3
"""Its grace is minutes: it need not look as often as others."""
_LOOKED_AT: Final = 1000
"""Many more than are removed in one turn: those that cannot be removed must not hide the others."""
_AGAIN: Final = Backoff(first_s=60.0, longest_s=3600.0)
_GIVEN_UP: Final = timedelta(days=2)
"""GitHub itself forgets a single-use runner that did not connect for a day."""


@dataclass(frozen=True, slots=True)
class _Failed:
    times: int
    again_at: float


class UnusedRegistrations:
    """Asks the forge to remove them, and forgets those that are gone. One that is busy is left alone."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts, self._settings = parts, parts.settings.recovery
        self._quiet_until: dict[str, float] = {}
        self._failed: dict[str, _Failed] = {}

    async def tick(self) -> float:
        parts, now = self._parts, self._parts.clock.now()
        grace = timedelta(seconds=self._settings.unused_s)
        unused = await parts.registrations.unused(noted_before=now - grace, limit=_LOOKED_AT)
        names = {registration.runner_name for registration in unused}
        self._failed = {name: was for name, was in self._failed.items() if name in names}
        due = [registration for registration in unused if self._may_ask(registration)]
        await each(parts, NAME, due[: self._settings.actions_max], self._remove)
        return self._settings.tick_s * _TICKS

    def _may_ask(self, registration: Registration) -> bool:
        now = self._parts.clock.monotonic()
        failed = self._failed.get(registration.runner_name)
        return (
            registration.kind in self._parts.forges
            and self._quiet_until.get(registration.tenant, now) <= now
            and (failed is None or failed.again_at <= now)
        )

    async def _remove(self, registration: Registration) -> None:
        if not self._may_ask(registration):  # its tenant was throttled in this very turn
            return
        try:
            removal = await self._parts.forges[registration.kind].remove(registration)
        except ForgeThrottled as error:
            until = self._parts.clock.monotonic() + error.retry_after_s
            self._quiet_until[registration.tenant] = until
            raise
        except ForgeError as error:
            self._put_off(registration)
            if isinstance(error, ForgeRefused) and self._is_old(registration):
                await self._forget(registration, f"nobody lets us remove it: {error.why}")
            raise
        if removal is Removal.BUSY:
            self._put_off(registration)
            log.info("registration is in use", runner=registration.runner_name)
            return
        await self._forget(registration, removal.value)

    def _put_off(self, registration: Registration) -> None:
        """Ask about it ever more seldom: others wait behind it."""
        name = registration.runner_name
        times = self._failed[name].times + 1 if name in self._failed else 1
        wait_s = _AGAIN.wait_s(times, self._parts.ids.fraction())
        self._failed[name] = _Failed(times, self._parts.clock.monotonic() + wait_s)

    def _is_old(self, registration: Registration) -> bool:
        noted_at = registration.noted_at
        return noted_at is not None and self._parts.clock.now() - noted_at > _GIVEN_UP

    async def _forget(self, registration: Registration, why: str) -> None:
        name = registration.runner_name
        if await self._parts.registrations.settle([name]):
            self._parts.metrics.recovered("unused_registration")
            log.info("registration forgotten", runner=name, why=why)
