"""
The pool of connections to PostgreSQL, embedded or not, with a deadline on everything.

asyncpg clears a connection's session when it goes back to the pool: one more round trip, a quarter of the claims per
second. Here that is off. It is safe as long as nobody leaves anything in a session: no ``SET`` (only ``SET LOCAL``), no
advisory lock but those of a transaction, no temporary table, no cursor with hold, no ``LISTEN``. What needs a session
of its own asks for a ``dedicated`` connection. A transaction that was left open is still rolled back.

What a connection answered is told before the connection is back in the pool: that takes some turns of the loop, and
whatever goes wrong there changes nothing of what was committed. Who was cancelled waits for it, unless it is cancelled
again: so what it does next does not overtake its statement.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import asyncpg
import structlog

from remuda.adapters.postgres.errors import Place, translated
from remuda.model.errors import BadInput
from remuda.ports.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractContextManager

    from asyncpg.pool import PoolConnectionProxy

    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Pooled: TypeAlias = PoolConnectionProxy[asyncpg.Record]

_log = structlog.get_logger()

URL_VARIABLE = "REMUDA_DATABASE_URL"
_CLIENT_GRACE_S = 2.0
"""How much longer the client waits than the server works: the server's own error says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """How the database is used."""

    url: str
    """postgresql://user:password@host:port/database. Holds a password: never log it."""
    connections_min: int = 10
    connections_max: int = 20
    connect_deadline_s: float = 5.0
    acquire_deadline_s: float = 5.0
    """How long to wait for a free connection of the pool."""
    statement_deadline_s: float = 10.0
    lock_deadline_s: float = 5.0
    """How long one statement may wait for a lock."""
    idle_transaction_deadline_s: float = 30.0
    """A transaction that nobody works on is ended by the server, with its locks."""
    application_name: str = "remuda"

    def __repr__(self) -> str:
        return f"DatabaseSettings({Place(self.url)})"

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self | None:
        """Return the settings for a given server; None if none is named, so the embedded one is to be used."""
        url = env.get(URL_VARIABLE, "").strip()
        if not url:
            return None
        if not url.startswith(("postgresql://", "postgres://")):
            raise BadInput(  # the value stays out of the text: it may be a password put into the wrong place
                f"{URL_VARIABLE} cannot be used",
                why="it is not a URL that begins with postgresql://",
                fix=f"Set {URL_VARIABLE}=postgresql://user:password@host:5432/database, or unset it",
            )
        return cls(url=url)


class Database:
    """Connections to one database. Made by ``open_database``."""

    def __init__(self, pool: Pool, settings: DatabaseSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._place = Place(settings.url)
        self._returns: set[asyncio.Task[None]] = set()
        """Connections on their way back. In no TaskGroup: the pool's end waits for them, as for what is lent out."""

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Pooled]:
        """Lend a connection; each statement on it is its own transaction."""
        with translated(self._place):
            async with asyncio.timeout(self._settings.acquire_deadline_s):
                connection = await self._pool.acquire()
            try:
                yield connection
            except BaseException:
                await self._return(connection)
                raise
            self._give_back(connection)

    def _give_back(self, connection: Pooled) -> None:
        task = asyncio.get_running_loop().create_task(self._return(connection), name="give back")
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    async def _return(self, connection: Pooled) -> None:
        """Put a connection back. The pool ends one that cannot be, and opens another when it is asked for one."""
        try:
            with self.translated():
                await self._pool.release(connection, timeout=self._settings.acquire_deadline_s)
        except DatabaseError as error:
            _log.info("connection_ended", error=str(error))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Pooled]:
        """Lend a connection inside a transaction: committed at the end of the block, rolled back if it raises."""
        async with self.connection() as connection:
            with translated(self._place):
                async with connection.transaction():
                    yield connection

    @contextlib.asynccontextmanager
    async def dedicated(self) -> AsyncIterator[Connection]:
        """Open a connection outside the pool, for LISTEN or for locks of a session; it is closed with the block."""
        async with connect(self._settings) as connection:
            yield connection

    async def open_dedicated(self, *, silent_s: float) -> Connection:
        """
        Open a connection outside the pool for a holder that closes it itself, and says errors by ``translated``.

        The server ends it, with its locks, if nothing is asked for so long: who is cut off says no good-bye.
        """
        options = _connect_options(self._settings)
        options["server_settings"]["idle_session_timeout"] = _milliseconds(silent_s)
        with self.translated():
            return await asyncpg.connect(self._settings.url, **options)

    def translated(self) -> AbstractContextManager[None]:
        """Turn what the block raises into a DatabaseError."""
        return translated(self._place)


@contextlib.asynccontextmanager
async def open_database(settings: DatabaseSettings) -> AsyncIterator[Database]:
    """Open a pool, and close it with the block: what is lent out is waited for, but not for ever."""
    place = Place(settings.url)
    with translated(place):
        pool = await asyncpg.create_pool(
            settings.url,
            min_size=min(settings.connections_min, settings.connections_max),
            max_size=settings.connections_max,
            reset=_leave_as_it_is,
            **_connect_options(settings),
        )
    try:
        yield Database(pool, settings)
    finally:
        await _close(pool, settings)


@contextlib.asynccontextmanager
async def connect(settings: DatabaseSettings) -> AsyncIterator[Connection]:
    """Open one connection without a pool."""
    place = Place(settings.url)
    with translated(place):
        connection = await asyncpg.connect(settings.url, **_connect_options(settings))
        try:
            yield connection
        finally:
            with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError):
                await connection.close(timeout=settings.connect_deadline_s)


async def _close(pool: Pool, settings: DatabaseSettings) -> None:
    try:
        async with asyncio.timeout(settings.statement_deadline_s):
            await pool.close()
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pool.terminate()


async def _leave_as_it_is(connection: Connection) -> None:
    """Run no statement when a connection comes back; see the top of this file."""


def _connect_options(settings: DatabaseSettings) -> dict[str, Any]:
    return {
        "timeout": settings.connect_deadline_s,
        "command_timeout": settings.statement_deadline_s + _CLIENT_GRACE_S,
        "server_settings": {
            "application_name": settings.application_name,
            "statement_timeout": _milliseconds(settings.statement_deadline_s),
            "lock_timeout": _milliseconds(settings.lock_deadline_s),
            "idle_in_transaction_session_timeout": _milliseconds(
                settings.idle_transaction_deadline_s
            ),
            "timezone": "UTC",
        },
    }


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
