"""Jobs that have waited here for long: their forge may have ended them long ago, and the message was lost."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from remuda.dispatch.decide.recovery import Doubt, Evidence, Inquiries
from remuda.dispatch.workers.inquiry import Inquiry
from remuda.dispatch.workers.turning import each
from remuda.model.job import JobState

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.dispatch.workers.parts import RecoveryParts
    from remuda.model.job import Job

NAME: Final = "stale-queued"
_PAGE: Final = 500
_WAITING_MAX: Final = 5000
_REST_TICKS: Final = 6
"""These have waited for minutes: one more is nothing, and the queue may be long."""


class StaleQueued:
    """
    Asks about old queued jobs, the oldest first, ever more seldom about those that do wait.

    A job whose pool is gone waits on: ``explain`` says so, and the pool may come back.
    """

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts, self._settings = parts, parts.settings.recovery
        self._memory = Inquiries(self._settings)
        self._inquiry = Inquiry(parts, self._memory, NAME)

    async def tick(self) -> float:
        parts = self._parts
        before = parts.clock.now() - timedelta(seconds=self._settings.queued_s)
        doubts = [Doubt(job, Evidence.WAITING) for job in await self._waiting(before)]
        due = self._memory.due(doubts, parts.clock.monotonic(), self._settings.actions_max)
        await each(parts, NAME, due, self._ask)
        more = len(due) == self._settings.actions_max
        return self._settings.tick_s * (1 if more else _REST_TICKS)

    async def _waiting(self, before: datetime) -> tuple[Job, ...]:
        """Read the oldest: those behind them come up when these are asked about more seldom, or go."""
        found: list[Job] = []
        after = None
        while True:
            page = await self._parts.views.jobs(
                states={JobState.QUEUED}, queued_before=before, after=after, limit=_PAGE
            )
            found += page
            if len(page) < _PAGE or len(found) >= _WAITING_MAX:
                return tuple(found)
            after = (page[-1].spec.queued_at, page[-1].spec.id)

    async def _ask(self, doubt: Doubt) -> None:
        await self._inquiry.about(doubt)
