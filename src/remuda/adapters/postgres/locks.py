"""
One at a time among replicas, by advisory locks of a session: all locks of a process are on one connection of its own.

They end with the connection, so each work runs only while it is known to be there: it is asked now and then, and all
works are cancelled when it does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from remuda.adapters.postgres.queries import query
from remuda.control.backoff import Backoff, spread
from remuda.control.tasks import ungrouped
from remuda.ports.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from remuda.adapters.postgres.pool import Connection, Database
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

CHECK_S = 5.0
"""How often the session is asked whether it is there, and a lock that another holds is tried again."""
SILENT_CHECKS = 3
"""After so many checks that did not come the server itself ends the session: its process is cut off or frozen."""
_log = structlog.get_logger()


class PostgresLocks:
    """Implements ``remuda.ports.locks.Locks``."""

    def __init__(
        self, database: Database, clock: Clock, ids: Ids, *, check_s: float = CHECK_S
    ) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._check_s = check_s
        self._backoff = Backoff(first_s=0.5, longest_s=10.0)
        self._session: _Session | None = None
        self._users = 0
        self._opening = asyncio.Lock()

    async def run_alone(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        async with self._joined():
            session = await self._acquired(name)
            try:
                await self._run(session, work)
            finally:
                session.give_back(name)
            with contextlib.suppress(DatabaseError):
                await session.tidy()

    @contextlib.asynccontextmanager
    async def _joined(self) -> AsyncIterator[None]:
        """Keep the session for as long as anybody here uses it."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0 and self._session is not None:
                self._session.end()
                self._session = None

    async def _acquired(self, name: str) -> _Session:
        failures = 0
        while True:
            try:
                session = await self._live()
                if await session.take(name):
                    return session
                failures, wait_s = 0, spread(self._check_s, self._ids.fraction())
            except DatabaseError as error:
                failures += 1
                wait_s = self._backoff.wait_s(failures, self._ids.fraction())
                _log.warning("lock_not_asked", name=name, why=str(error))
            await self._clock.sleep(wait_s)

    async def _live(self) -> _Session:
        async with self._opening:
            if self._session is None or self._session.lost.is_set():
                silent_s = SILENT_CHECKS * self._check_s
                connection = await self._database.open_dedicated(silent_s=silent_s)
                self._session = _Session(self._database, connection, timeout_s=self._check_s)
            return self._session

    async def _run(self, session: _Session, work: Callable[[], Awaitable[None]]) -> None:
        await ungrouped(self._run_watched(session, work))

    async def _run_watched(self, session: _Session, work: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as group:
            working = group.create_task(_awaited(work), name="work under a lock")
            watching = group.create_task(self._watch(session), name="watch of a lock")
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            watching.cancel()

    async def _watch(self, session: _Session) -> None:
        """End when the session is lost."""
        while not session.lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(spread(self._check_s, self._ids.fraction())):
                    await session.lost.wait()
            with contextlib.suppress(DatabaseError):
                await session.check(self._clock.monotonic(), self._check_s)


class _Session:
    """One connection and the locks on it. Advisory locks count: a name is held once, or by nobody here."""

    def __init__(self, database: Database, connection: Connection, *, timeout_s: float) -> None:
        self.lost = asyncio.Event()
        self._database = database
        self._connection = connection
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._held: set[str] = set()
        self._free: set[str] = set()
        """Held by the connection, used by nobody: an unlock that could not wait."""
        self._checked_at = 0.0
        connection.add_termination_listener(lambda *_: self.lost.set())

    async def take(self, name: str) -> bool:
        async with self._turn:
            await self._unlock()
            if name in self._held or self.lost.is_set():
                return False
            self._free.add(
                name
            )  # if we are cancelled now, whether we have it is unknown: unlock it
            taken = await self._ask(query("take_lock"), name)
            self._free.discard(name)
            if taken:
                self._held.add(name)
            return bool(taken)

    def give_back(self, name: str) -> None:
        self._held.discard(name)
        self._free.add(name)

    async def tidy(self) -> None:
        async with self._turn:
            await self._unlock()

    async def check(self, now: float, every_s: float) -> None:
        """Ask for a sign of life, once for all who are served by this session."""
        async with self._turn:
            if self.lost.is_set() or now - self._checked_at < every_s / 2:
                return
            await self._unlock()
            await self._ask(query("still_there"))
            self._checked_at = now

    async def _unlock(self) -> None:
        while self._free and not self.lost.is_set():
            name = min(self._free)
            await self._ask(query("give_lock_back"), name)
            self._free.discard(name)

    async def _ask(self, statement: str, *values: str) -> object:
        """Ask the server. If it does not answer, nobody knows any more which locks there are."""
        try:
            with self._database.translated():
                async with asyncio.timeout(self._timeout_s):
                    return await self._connection.fetchval(statement, *values)
        except DatabaseError:
            self.end()
            raise

    def end(self) -> None:
        self.lost.set()
        self._connection.terminate()


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
