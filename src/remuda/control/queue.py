"""
Keys to look at, each by one handler at a time.

A key that is added while it waits is there once; added while it is being handled, it is handled again afterwards. What
fails is tried again with growing waits. The queue remembers keys only: a handler starts from a fresh look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from remuda.control.backoff import Backoff
from remuda.model.errors import RemudaError, Retry
from remuda.ports.kube import Conflict, Throttled

if TYPE_CHECKING:
    from remuda.ports.ids import Ids

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)

Handler = Callable[[K], Awaitable[timedelta | None]]
"""Looks at one key and does what it needs; may say when to look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    workers_max: int = 8
    """How many keys are handled at once."""

    backoff: Backoff = field(default_factory=Backoff)
    """How long a key waits after its handler failed."""


_DEFAULTS = QueueSettings()


class WorkQueue(Generic[K]):
    """Add keys from anywhere in the loop; ``run`` handles them."""

    def __init__(
        self, name: str, handler: Handler[K], ids: Ids, settings: QueueSettings = _DEFAULTS
    ) -> None:
        self._name = name
        self._handler = handler
        self._ids = ids
        self._settings = settings
        self._group: asyncio.TaskGroup | None = None
        self._waiting: dict[K, None] = {}  # first come, first served
        self._running: set[K] = set()
        self._touched: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._draining = False
        self._quiet = asyncio.Event()
        self._quiet.set()

    def add(self, key: K) -> None:
        """Have ``key`` handled as soon as there is a worker for it."""
        if key in self._running:
            self._touched.add(key)
            return
        self._waiting[key] = None
        self._start_some()

    def add_after(self, key: K, seconds: float) -> None:
        """Have ``key`` handled in a while. Of two such times the earlier counts."""
        loop = asyncio.get_running_loop()
        pending = self._timers.get(key)
        if pending is not None:
            if pending.when() <= loop.time() + seconds:
                return
            pending.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    async def run(self) -> None:
        """Handle keys until cancelled. Handlers that are running then are cancelled too; see ``drain``."""
        assert self._group is None, f"the queue {self._name} runs already"
        self._draining = False
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._start_some()
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    self._group = None
        finally:
            for key, timer in self._timers.items():
                timer.cancel()
                self._waiting[key] = None  # for the next run: a look too early does no harm
            self._timers.clear()

    async def drain(self) -> None:
        """Start nothing more and wait for the handlers that are running. What waits is the next process's to see."""
        self._draining = True
        await self._quiet.wait()

    def __len__(self) -> int:
        """Return how many keys wait or are being handled now."""
        return len(self._waiting) + len(self._running)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _start_some(self) -> None:
        if self._group is None or self._draining:
            return
        while self._waiting and len(self._running) < self._settings.workers_max:
            key = next(iter(self._waiting))
            del self._waiting[key]
            if timer := self._timers.pop(key, None):
                timer.cancel()  # this look replaces the later one that was asked for
            self._running.add(key)
            self._quiet.clear()
            self._group.create_task(self._handle(key), name=f"{self._name}:{key}")

    async def _handle(self, key: K) -> None:
        try:
            look_again_after = await self._handler(key)
        except asyncio.CancelledError:
            if _is_stopping():
                self._touched.add(key)  # cut short: if this queue runs again, it looks again
                raise
            # Nobody cancelled this handler: it awaited what someone else had given up.
            log.warning("handler gave up", queue=self._name, key=str(key))
            self.add_after(key, self._wait_s(key))
        except RemudaError as error:
            self._failed(key, error)
        except Exception:  # the loop's edge: one key's bug must not stop the others
            log.exception("handler failed", queue=self._name, key=str(key))
            self.add_after(key, self._wait_s(key))
        else:
            self._failures.pop(key, None)
            if look_again_after is not None:
                self.add_after(key, look_again_after.total_seconds())
        finally:
            self._done(key)

    def _done(self, key: K) -> None:
        self._running.discard(key)
        if key in self._touched:
            self._touched.discard(key)
            self._waiting[key] = None
        if not self._running:
            self._quiet.set()
        self._start_some()

    def _failed(self, key: K, error: RemudaError) -> None:
        say = log.info if isinstance(error, Conflict) else log.warning
        say("handler failed", queue=self._name, key=str(key), error=str(error), retry=error.retry)
        if error.retry is Retry.NEVER:
            self._failures.pop(key, None)  # only a change can help, and a change adds the key
            return
        wait_s = self._wait_s(key)
        if isinstance(error, Throttled):
            wait_s = max(wait_s, error.retry_after_s)
        self.add_after(key, wait_s)

    def _wait_s(self, key: K) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return self._settings.backoff.wait_s(failures, self._ids.fraction())


def _is_stopping() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
