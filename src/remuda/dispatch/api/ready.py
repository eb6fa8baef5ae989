"""Whether this replica can serve: it sees the fleet, reaches its database, and is not on its way out."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from remuda.dispatch.api.problems import Problem
from remuda.dispatch.view import DispatchView
from remuda.model.errors import RemudaError
from remuda.ports.clock import Clock
from remuda.ports.job_views import JobViews

_DATABASE_S = 2.0
_REMEMBERED_S = 1.0
"""Whoever can reach us may ask: a flood of questions must not become one of statements."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Whether this process can serve now, and a word for it."""

    ok: bool
    says: str


class Readiness:
    """Answers ``/readyz``. Many who ask at once share one look at the database."""

    def __init__(
        self,
        views: JobViews,
        view: DispatchView,
        clock: Clock,
        *,
        closing: Callable[[], bool],
        obstacle: Callable[[], str] = str,
    ) -> None:
        self._views = views
        self._view = view
        self._clock = clock
        self._closing = closing
        self._obstacle = obstacle
        self._asking = asyncio.Lock()
        self._database = ""
        self._asked_at: float | None = None

    async def check(self) -> Ready:
        if self._closing():
            return Ready(ok=False, says="it is shutting down")
        if obstacle := self._obstacle():
            return Ready(ok=False, says=obstacle)
        if not self._view.synced:
            return Ready(ok=False, says="it has not seen all runners and pools yet")
        async with self._asking:
            if self._is_old():
                self._database = await self._ask()
                self._asked_at = self._clock.monotonic()
        return Ready(ok=not self._database, says=self._database or "ready")

    def _is_old(self) -> bool:
        asked_at = self._asked_at
        return asked_at is None or self._clock.monotonic() - asked_at >= _REMEMBERED_S

    async def _ask(self) -> str:
        try:
            async with asyncio.timeout(_DATABASE_S):
                await self._views.audit_end()
        except (RemudaError, TimeoutError):
            return "its database does not answer"
        return ""


def must_see(view: DispatchView) -> None:
    """Refuse to speak about the fleet before all of it was seen: what is missing would look as if it were gone."""
    if not view.synced:
        why, fix = "this replica has not seen all runners and pools yet", "Ask again in a moment"
        raise Problem(503, "The fleet cannot be shown now", why, fix, {"Retry-After": "1"})
