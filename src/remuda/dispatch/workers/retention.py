"""Forgets what has been over for so long that no forge can speak of it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from remuda.dispatch.workers.parts import RecoveryParts

log = structlog.get_logger(__name__)

NAME: Final = "retention"
_BATCH: Final = 1000
_BATCHES_MAX: Final = 100
_BETWEEN_S: Final = 0.2
"""Between two batches: nobody waits for this, and everybody shares the database."""


class Retention:
    """Once an hour, in small batches."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts

    async def tick(self) -> float:
        parts, settings = self._parts, self._parts.settings
        now = parts.clock.now()
        messages = await parts.deliveries.forget(processed_before=now - settings.intake.remembered)
        over_before = now - settings.recovery.keep_over
        rows = 0
        for _ in range(_BATCHES_MAX):
            forgotten = await parts.store.forget(over_before=over_before, limit=_BATCH)
            rows += forgotten
            if forgotten == 0:
                break
            await parts.clock.sleep(_BETWEEN_S)
        if messages or rows:
            log.info("what is long over is forgotten", messages=messages, rows=rows)
        return settings.recovery.retention_s
