"""
What does not trust messages to arrive: a sweep for queued jobs that nobody announced, and requests for lost messages.

Each runs on one replica at a time, and starts from a fresh look at the forge. It only finds: jobs that are queued here
and over at the forge are closed by the recovery workers. Where no messages come, ``polling`` sweeps in its place, more
often, and finds the ends of jobs too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import structlog

from remuda.control.backoff import Backoff, spread
from remuda.dispatch.announcements import ENQUEUED
from remuda.dispatch.polling import POLL, Poller
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.dispatch.announcements import Announcements
    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.dispatch.polling import LookUp
    from remuda.dispatch.settings import IntakeSettings
    from remuda.ports.clock import Clock
    from remuda.ports.forge import Announcement, Announcer
    from remuda.ports.ids import Ids
    from remuda.ports.job_views import JobViews
    from remuda.ports.locks import Locks

log = structlog.get_logger(__name__)

SWEEP: Final = "sweep"
REDELIVERY: Final = "redelivery"
_GAP_S: Final = 1.0
"""The least time between the end of a turn and the next, however long it took."""

Loop = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeps:
    """Runs both, for as long as they are not cancelled; a turn that fails is counted, and the next one comes."""

    announcer: Announcer
    look_up: LookUp
    announcements: Announcements
    views: JobViews
    locks: Locks
    settings: IntakeSettings
    metrics: DispatchMetrics
    clock: Clock
    ids: Ids

    def loops(self) -> Mapping[str, Loop]:
        """Return the loops by name. Run them on each replica: only one of them works at a time."""
        loops: dict[str, Loop] = {SWEEP: self._sweep_for_ever}
        if self.settings.messages:
            loops[REDELIVERY] = self._redeliver_for_ever
        return loops

    async def _sweep_for_ever(self) -> None:
        how, period_s = self.settings, self.settings.sweep_s
        if how.polling is None:
            await self._alone(SWEEP, self.sweep, lambda: period_s)
        poller = Poller(
            announcer=self.announcer,
            look_up=self.look_up,
            apply=lambda news: self._apply_all(news, by=POLL),
            views=self.views,
            settings=how,
            how=how.polling,
            clock=self.clock,
        )
        await self._alone(SWEEP, poller.turn, lambda: poller.wait_s)

    async def _redeliver_for_ever(self) -> None:
        period_s = self.settings.redeliver_s
        await self._alone(REDELIVERY, self.redeliver, lambda: period_s)

    async def sweep(self) -> int:
        """Look for queued jobs once; return how many were new to us."""
        how = self.settings
        active = await self.views.recent_repositories(
            since=self.clock.now() - how.active_for, limit=how.sweep_repositories_max
        )
        swept = await self.announcer.sweep(active, at_most=how.sweep_repositories_max)
        outcomes = await self._apply_all(swept.found, by=SWEEP)
        found = sum(outcome == ENQUEUED for outcome in outcomes.values())
        self.metrics.recovered("queued_found", found)
        if swept.left_out:
            log.info("sweep left repositories out", left_out=swept.left_out)
        if found:
            log.info("sweep found jobs", found=found, repositories=swept.repositories)
        return found

    async def redeliver(self) -> int:
        """Ask for lost messages once; return how many will come again."""
        count = await self.announcer.redeliver(within=self.settings.redeliver_within)
        self.metrics.recovered("redelivered", count)
        return count

    async def _apply_all(
        self, found: Sequence[Announcement], *, by: str
    ) -> Mapping[Announcement, str]:
        """Apply what was found, some at a time: each may need an answer of the forge. What failed has no outcome."""
        left = iter(found)
        outcomes: dict[Announcement, str] = {}

        async def apply_some(left: Iterator[Announcement]) -> None:
            for news in left:
                try:
                    outcomes[news] = await self.announcements.apply(news, by=by)
                except RemudaError as error:
                    self._failed(SWEEP, error)

        async with asyncio.TaskGroup() as group:
            for number in range(self.settings.workers):
                group.create_task(apply_some(left), name=f"sweep: {number}")
        return outcomes

    # --- Again and again ---------------------------------------------------------------------------------------------

    async def _alone(
        self, name: str, turn: Callable[[], Awaitable[int]], period_s: Callable[[], float]
    ) -> NoReturn:
        """Take turns under a lock, and wait for it again when it is lost."""
        backoff, failures = Backoff(first_s=_GAP_S, longest_s=30.0), 0

        async def turns() -> None:
            nonlocal failures
            failures = 0
            while True:
                began_at = self.clock.monotonic()
                await self._turn(name, turn)
                left_s = spread(period_s(), self.ids.fraction()) - (
                    self.clock.monotonic() - began_at
                )
                await self.clock.sleep(max(_GAP_S, left_s))

        while True:
            try:
                await self.locks.run_alone(name, turns)
            except RemudaError as error:
                self._failed(name, error)
            failures += 1
            await self.clock.sleep(backoff.wait_s(failures, self.ids.fraction()))

    async def _turn(self, name: str, turn: Callable[[], Awaitable[int]]) -> None:
        try:
            async with asyncio.timeout(self.settings.sweep_deadline_s):
                await turn()
        except (RemudaError, TimeoutError) as error:
            self._failed(name, error)
        except Exception as error:
            # The loop's edge: an answer that breaks us must not end the sweeps
            log.exception("turn broke", worker=name)
            self._failed(name, error)

    def _failed(self, worker: str, error: Exception) -> None:
        self.metrics.worker_failed(worker)
        why = str(error) or type(error).__name__
        log.warning("worker failed", worker=worker, error=why)
