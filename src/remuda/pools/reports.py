"""
Telling dispatch that a runner stopped, so that its job's books are closed at once.

Best effort: dispatch finds out by itself a little later, so a report that fails is counted and never holds a delete up.
While dispatch is down, a mass reap must not wait for it once per runner: after a failure it is left alone for a while.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from remuda.ports.dispatch import DispatchError, Stopped

if TYPE_CHECKING:
    from remuda.model.runner import Runner
    from remuda.pools.decide.actions import Cause
    from remuda.pools.reins import Reins

log = structlog.get_logger(__name__)


class Reports:
    """The reports of one reign."""

    def __init__(self, reins: Reins) -> None:
        self._dispatch, self._clock, self._metrics = reins.dispatch, reins.clock, reins.metrics
        self._settings = reins.settings
        self._pause_until = float("-inf")

    async def stopped(self, runner: Runner, cause: Cause) -> None:
        """Report the end of a runner. Never raises, and never takes longer than its deadline."""
        if self._dispatch is None:
            return
        if self._clock.monotonic() < self._pause_until:
            self._metrics.report_failed()
            return
        try:
            async with asyncio.timeout(self._settings.report_timeout_s):
                await self._dispatch.stopped(runner.name, self._report(runner, cause))
        except (DispatchError, TimeoutError) as error:
            self._pause_until = self._clock.monotonic() + self._settings.report_pause_s
            self._metrics.report_failed()
            why = str(error) or "no answer in time"
            log.warning("end of a runner not reported", runner=runner.name, error=why)
        else:
            log.info("end of a runner reported", runner=runner.name, cause=cause)

    def _report(self, runner: Runner, cause: Cause) -> Stopped:
        end = runner.end
        return Stopped(
            ended_at=(end.at if end else None) or self._clock.now(),
            exit_code=end.exit_code if end else None,
            reason=(end.reason if end else "") or cause.value,
        )
