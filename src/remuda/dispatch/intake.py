"""
How a forge's messages come in: checked, kept durably, answered; and worked off afterwards, in order for each job.

``Intake`` is all that a sender waits for: no forge and no Kubernetes is asked there. ``IntakeWorkers`` work on what is
kept, on every replica at once: the inbox lends each message to one of them, and whoever dies loses it after the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from remuda.control.backoff import Backoff
from remuda.model.errors import RemudaError
from remuda.ports.database import DatabaseError, DatabaseTimeout
from remuda.ports.forge import ForgeRefused, ForgeThrottled, Ignored, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from remuda.dispatch.announcements import Announcements
    from remuda.dispatch.metrics import DispatchMetrics
    from remuda.dispatch.settings import IntakeSettings
    from remuda.ports.clock import Clock
    from remuda.ports.deliveries import Deliveries, Delivery
    from remuda.ports.forge import Announcer, Webhooks
    from remuda.ports.ids import Ids

log = structlog.get_logger(__name__)

KEPT: Final = "kept"
DUPLICATE: Final = "duplicate"
GIVEN_UP: Final = "given_up"
REFUSED: Final = "forge_refused"
PUT_BACK: Final = "put_back"
_HAND_BACK_S: Final = 2.0


def _nobody() -> None:
    """Wake nobody: the workers are elsewhere."""


class Intake:
    """What a sender of messages waits for."""

    def __init__(
        self,
        webhooks: Webhooks,
        deliveries: Deliveries,
        *,
        settings: IntakeSettings,
        metrics: DispatchMetrics,
        wake: Callable[[], None] = _nobody,
    ) -> None:
        self.settings = settings
        self._webhooks, self._deliveries = webhooks, deliveries
        self._metrics, self._wake = metrics, wake

    def refuse_unread(self, headers: Mapping[str, str]) -> Rejected | None:
        """Say whether a message is refused by its headers (lower-case names) alone; then its body is not read."""
        refused = self._webhooks.refuse_unread(headers)
        if refused is not None:
            self.count(f"rejected_{refused.status}")
        return refused

    async def receive(self, headers: Mapping[str, str], body: bytes) -> str | Rejected:
        """
        Check a message and keep it. Returns a word for what was done once that is durable, or why nothing was.

        Raises DatabaseError: then the sender must send it again.
        """
        accepted = self._webhooks.accept(headers, body)
        if isinstance(accepted, Rejected):
            self.count(f"rejected_{accepted.status}")
            return accepted
        if isinstance(accepted, Ignored):
            self.count(accepted.reason)
            return accepted.reason
        word = KEPT if await self.keep(accepted) else DUPLICATE
        self.count(word)
        return word

    async def keep(self, delivery: Delivery) -> bool:
        """Keep a message whose signature was right. False: it was here before. Raises DatabaseError."""
        try:
            async with asyncio.timeout(self.settings.record_s):
                new = await self._deliveries.record(delivery)
        except TimeoutError as error:
            self.count("not_kept")
            raise DatabaseTimeout(
                "The message was not kept",
                why=f"the database did not answer within {self.settings.record_s:g} s",
                fix="Send it again",
            ) from error
        except DatabaseError:
            self.count("not_kept")
            raise
        if new:
            self._wake()
        return new

    def count(self, outcome: str) -> None:
        self._metrics.webhook(outcome)


class _Places:
    """How many messages are worked on. A slow one leaves its place to others: it waits for the forge."""

    def __init__(self, settings: IntakeSettings, wake: Callable[[], None]) -> None:
        self._settings, self._wake = settings, wake
        self._busy: set[str] = set()
        self._slow: set[str] = set()

    @property
    def free(self) -> int:
        return self._settings.workers - len(self._busy)

    @contextlib.contextmanager
    def held(self, guid: str) -> Iterator[None]:
        """Hold a place for as long as the block lasts, or until it is slow."""
        self._busy.add(guid)
        self._look_later(guid)
        try:
            yield
        finally:
            self._busy.discard(guid)
            self._slow.discard(guid)
            self._wake()  # there is room, and the next message about the same job may go

    def _look_later(self, guid: str) -> None:
        asyncio.get_running_loop().call_later(self._settings.slow_s, self._look, guid)

    def _look(self, guid: str) -> None:
        if guid not in self._busy:
            return
        if len(self._slow) >= self._settings.slow_max:
            self._look_later(guid)
            return
        self._busy.discard(guid)
        self._slow.add(guid)
        self._wake()


@dataclass(slots=True, kw_only=True)
class IntakeWorkers:
    """Work off what is kept. ``run`` it on each replica; ``wake`` it when a message was kept."""

    deliveries: Deliveries
    announcer: Announcer
    announcements: Announcements
    settings: IntakeSettings
    metrics: DispatchMetrics
    clock: Clock
    ids: Ids
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _places: _Places = field(init=False)

    def __post_init__(self) -> None:
        self._places = _Places(self.settings, self.wake)

    def wake(self) -> None:
        """Look for messages now."""
        self._news.set()

    async def run(self) -> None:
        """Work until cancelled. What is under way then is handed back, for another replica to take at once."""
        await self.announcements.view.wait_synced()  # else each attempt would only wait for that
        async with asyncio.TaskGroup() as group:
            await self._feed(group)

    async def _feed(self, group: asyncio.TaskGroup) -> None:
        failures, backoff = 0, Backoff(first_s=self.settings.poll_s, longest_s=10.0)
        while True:
            self._news.clear()
            wait_s = self.settings.poll_s
            try:
                for delivery in await self._take():
                    group.create_task(self._work(delivery), name=f"intake: {delivery.guid}")
                failures = 0
            except DatabaseError as error:
                failures += 1
                self._failed(error)
                wait_s = backoff.wait_s(failures, self.ids.fraction())
            await self._wait(wait_s, even_if_news=failures > 0)

    async def _take(self) -> tuple[Delivery, ...]:
        if self._places.free <= 0:
            return ()
        return await self.deliveries.take(limit=self._places.free, lease=self.settings.lease)

    async def _wait(self, seconds: float, *, even_if_news: bool) -> None:
        if even_if_news:
            await self.clock.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    # --- One message -------------------------------------------------------------------------------------------------

    async def _work(self, delivery: Delivery) -> None:
        with self._places.held(delivery.guid):
            try:
                await self._work_off(delivery)
            except DatabaseError as error:
                # What became of it is unknown: after its lease somebody looks again
                self._failed(error)
            except asyncio.CancelledError:
                await self._hand_back(delivery)
                raise

    async def _work_off(self, delivery: Delivery) -> None:
        try:
            async with asyncio.timeout(self.settings.lease.total_seconds() / 2):
                outcome = await self._apply(delivery)
        except ForgeRefused as error:
            log.warning("message refused", guid=delivery.guid, error=str(error))
            await self._finish(delivery, REFUSED)
        except (RemudaError, TimeoutError) as error:
            await self._put_back(delivery, error)
        except Exception as error:
            # The loop's edge: one message that breaks us must not stop the others
            log.exception("message broke its worker", guid=delivery.guid, kind=delivery.event)
            await self._put_back(delivery, error)
        else:
            await self._finish(delivery, outcome)

    async def _apply(self, delivery: Delivery) -> str:
        async with asyncio.timeout(self.settings.forge_s):
            news = await self.announcer.read(delivery)
        if isinstance(news, Ignored):
            return news.reason
        return await self.announcements.apply(news, by="webhook")

    async def _finish(self, delivery: Delivery, outcome: str) -> None:
        if await self.deliveries.processed(delivery.guid, outcome):
            self.metrics.webhook(outcome)

    async def _put_back(self, delivery: Delivery, error: Exception) -> None:
        why = str(error) or type(error).__name__
        if delivery.attempts >= self.settings.attempts_max:
            log.error(
                "message given up; the sweep is what is left for its job",
                guid=delivery.guid,
                job=delivery.subject,
                attempts=delivery.attempts,
                error=why,
            )
            await self._finish(delivery, GIVEN_UP)
            return
        wait_s = self._retry_s(delivery, error)
        retry_at = self.clock.now() + timedelta(seconds=wait_s)
        log.info("message put back", guid=delivery.guid, job=delivery.subject, error=why)
        if await self.deliveries.put_back(delivery.guid, retry_at=retry_at):
            self.metrics.webhook(PUT_BACK)

    def _retry_s(self, delivery: Delivery, error: Exception) -> float:
        how = self.settings
        backoff = Backoff(first_s=how.retry_s, longest_s=how.retry_max_s)
        wait_s = backoff.wait_s(max(1, delivery.attempts), self.ids.fraction())
        if isinstance(error, ForgeThrottled):
            return max(wait_s, min(error.retry_after_s, how.retry_max_s))
        return wait_s

    async def _hand_back(self, delivery: Delivery) -> None:
        """Give up the lease: we are told to stop. If that fails, the lease ends by itself."""
        with contextlib.suppress(RemudaError, TimeoutError):
            async with asyncio.timeout(_HAND_BACK_S):
                await self.deliveries.put_back(delivery.guid, retry_at=self.clock.now())

    def _failed(self, error: Exception) -> None:
        self.metrics.worker_failed("intake")
        log.warning("worker failed", worker="intake", error=str(error))
