"""
The audit as it happens, for any number of listeners: one reader asks the database, and only while somebody listens.

A listener that is slower than the news is never waited for and never buffered without bound: what overflows is dropped
and read again from the database later. So each listener hears of every entry, in order, as long as it keeps listening.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from remuda.dispatch.decide.settled import settled
from remuda.model.job import AuditEntry
from remuda.ports.clock import Clock
from remuda.ports.database import DatabaseError
from remuda.ports.job_views import JobViews

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    """How the audit is followed."""

    poll_s: float = 1.0
    """How often to ask for news while somebody listens."""

    page: int = 500
    looks_back: int = 200
    """How far before the end to begin: numbers that were taken but not written yet are not missed."""

    buffer_max: int = 1000
    """How many entries one listener may be behind before it reads from the database again."""

    listeners_max: int = 500
    heartbeat_s: float = 15.0
    send_s: float = 30.0
    """How long a listener may take to read what it was sent: a peer that vanished must not be kept."""

    lasts_s: float = 3600.0
    """A stream ends after this; its listener comes again with the last id, and its token is looked at anew."""


class Listener:
    """One who listens. It is told and woken by the feed, and asks it for what is next."""

    def __init__(self, buffer_max: int) -> None:
        self.position = 0
        """The number of the last entry that it was given."""
        self._buffer: deque[AuditEntry] = deque()
        self._buffer_max = buffer_max
        self._news = asyncio.Event()
        self.placed = False
        """Whether it is known where it begins."""
        self.behind = True
        """It must read from the database, from ``position`` on: it is new, or its buffer overflowed."""

    def tell(self, entries: tuple[AuditEntry, ...]) -> None:
        """Take news in; never waits."""
        if not self.behind:
            self._buffer.extend(e for e in entries if e.number > self.position)
        if len(self._buffer) > self._buffer_max:
            self._buffer.clear()
            self.behind = True
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    async def wait(self) -> None:
        await self._news.wait()
        self._news.clear()

    def take(self) -> tuple[AuditEntry, ...]:
        taken = tuple(self._buffer)
        self._buffer.clear()
        if taken:
            self.position = taken[-1].number
        return taken


class AuditFeed:
    """``run`` is a loop of the process; ``listening`` joins a listener to it."""

    def __init__(self, views: JobViews, clock: Clock, settings: FeedSettings | None = None) -> None:
        self._views = views
        self._clock = clock
        self.settings = settings or FeedSettings()
        self._listeners: set[Listener] = set()
        self._wanted = asyncio.Event()
        self._known = asyncio.Event()
        self.position = 0
        """Every entry up to this number was told, and none will come before it."""
        self.closed = False

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def is_full(self) -> bool:
        return len(self._listeners) >= self.settings.listeners_max

    def close(self) -> None:
        """End every stream: this replica goes."""
        self.closed = True
        self._known.set()
        for listener in self._listeners:
            listener.wake()

    async def run(self) -> None:
        """Ask for news while somebody listens, until cancelled."""
        while True:
            if not self._listeners:
                self._wanted.clear()
                self._known.clear()
            await self._wanted.wait()
            try:
                await self._look()
            except DatabaseError as error:
                log.warning("audit not read", what=error.what, why=error.why, fix=error.fix)
            await self._clock.sleep(self.settings.poll_s)

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """Be a listener for as long as the block lasts: ask ``next`` again and again."""
        listener = Listener(self.settings.buffer_max)
        self._listeners.add(listener)
        self._wanted.set()
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def next(self, listener: Listener, after: int | None) -> tuple[AuditEntry, ...]:
        """
        Return what a listener has not heard yet; wait for it if need be. None at all: ask again.

        A new one begins behind ``after``, or with what happens next if that is None. It may be cancelled anywhere.
        """
        if not listener.placed:
            await self._place(listener, after)
        if listener.behind:
            if missed := await self._catch_up(listener):
                return missed
            if listener.behind:
                return ()
        if not (news := listener.take()):
            await listener.wait()
            news = listener.take()
        return news

    async def _place(self, listener: Listener, after: int | None) -> None:
        await self._known.wait()
        if after is not None and after > self.position:
            # Another replica may be ahead of this one. A number that was never given out is of another database.
            end = await self._views.audit_end()
            after = after if after <= end else None
        listener.position = self.position if after is None else after
        listener.placed = True

    async def _catch_up(self, listener: Listener) -> tuple[AuditEntry, ...]:
        """Return one page of what a listener missed; once that is all, it hears of news as they come."""
        upto = self.position
        if listener.position >= upto:
            listener.behind = False
            return ()
        page = await self._views.audit(after=listener.position, limit=self.settings.page)
        missed = tuple(entry for entry in page if entry.number <= upto)
        full = len(missed) == self.settings.page
        listener.position = missed[-1].number if full else upto
        return missed

    async def _look(self) -> None:
        if not self._known.is_set():
            end = await self._views.audit_end()
            self.position = max(self.position, end - self.settings.looks_back)
        while True:
            page = await self._views.audit(after=self.position, limit=self.settings.page)
            news = settled(page, self.position, self._clock.now())
            if news:
                self.position = news[-1].number
                for listener in self._listeners:
                    listener.tell(news)
            if len(news) < self.settings.page:
                break
        self._known.set()
