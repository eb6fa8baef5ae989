"""
News of work by LISTEN, on a connection of its own.

A connection that dies without a word is noticed by a question now and then; it is made again with growing pauses. What
was told in between is gone, so that a listener is told to look everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from remuda.adapters.postgres.queries import query
from remuda.control.backoff import Backoff
from remuda.ports.database import DatabaseError, DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from remuda.adapters.postgres.pool import Connection, Database
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

CHANNEL = "remuda_jobs"
CHECK_S = 10.0
"""How often a silent connection is asked whether it is there."""
HEARD_MAX = 10_000
"""More than that unread is one piece of news: look everywhere."""
_log = structlog.get_logger()


class PostgresWakeups:
    """Implements ``remuda.ports.wakeups.Wakeups``."""

    def __init__(
        self, database: Database, clock: Clock, ids: Ids, *, check_s: float = CHECK_S
    ) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._check_s = check_s
        self._backoff = Backoff(first_s=0.2, longest_s=10.0)

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[str | None]]:
        async with contextlib.aclosing(self._news()) as news:
            yield news

    async def _news(self) -> AsyncGenerator[str | None]:
        failures = 0
        while True:
            try:
                async with self._database.dedicated() as connection:
                    heard = _Heard()
                    connection.add_termination_listener(heard.end)
                    await connection.add_listener(CHANNEL, heard.hear)
                    failures = 0
                    yield None
                    while True:
                        yield await self._next(connection, heard)
            except DatabaseError as error:
                failures += 1
                wait_s = self._backoff.wait_s(failures, self._ids.fraction())
                _log.warning("wakeups_lost", why=str(error), retry_in_s=round(wait_s, 1))
                await self._clock.sleep(wait_s)

    async def _next(self, connection: Connection, heard: _Heard) -> str | None:
        while not heard.waiting:
            try:
                async with asyncio.timeout(self._check_s):
                    await heard.news.wait()
            except TimeoutError:
                await connection.execute(query("still_there"), timeout=self._check_s)
        return heard.take()


class _Heard:
    """What a connection heard and nobody has read yet."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._pools: list[str | None] = []
        self._ended = False

    @property
    def waiting(self) -> bool:
        return self._ended or bool(self._pools)

    def hear(self, *told: object) -> None:
        if len(self._pools) >= HEARD_MAX:
            self._pools = [None]
        self._pools.append(str(told[-1]))
        self.news.set()

    def end(self, *_: object) -> None:
        self._ended = True
        self.news.set()

    def take(self) -> str | None:
        if self._ended:
            raise DatabaseUnavailable(
                "No news of work comes in",
                why="the connection that listens was lost",
                fix="It is made again",
            )
        pool = self._pools.pop(0)
        if not self._pools:
            self.news.clear()
        return pool
