"""Registrations at a forge that nothing stands behind: removed, so that no dead runner of ours is left there."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from remuda.dispatch.workers.turning import each
from remuda.ports.forge import ForgeThrottled, Removal

if TYPE_CHECKING:
    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.ports.registrations import Registration

log = structlog.get_logger(__name__)

NAME: Final = "unused-registrations"
_TICKS: Final = 3
"""Its grace is minutes: it need not look as often as others."""


class UnusedRegistrations:
    """Asks the forge to remove them, and forgets those that are gone. One that is busy is left alone."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts, self._settings = parts, parts.settings.recovery
        self._quiet_until: dict[str, float] = {}

    async def tick(self) -> float:
        parts, now = self._parts, self._parts.clock.now()
        unused = await parts.registrations.unused(
            noted_before=now - timedelta(seconds=self._settings.unused_s),
            limit=self._settings.actions_max,
        )
        await each(parts, NAME, unused, self._remove)
        return self._settings.tick_s * _TICKS

    async def _remove(self, registration: Registration) -> None:
        parts, now = self._parts, self._parts.clock.monotonic()
        forge = parts.forges.get(registration.kind)
        if forge is None or self._quiet_until.get(registration.tenant, now) > now:
            return
        try:
            removal = await forge.remove(registration)
        except ForgeThrottled as error:
            self._quiet_until[registration.tenant] = now + error.retry_after_s
            raise
        if removal is Removal.BUSY:
            log.info("registration is in use", runner=registration.runner_name)
            return
        if await parts.registrations.settle([registration.runner_name]):
            parts.metrics.recovered("unused_registration")
            log.info("registration removed", runner=registration.runner_name, found=removal.value)
