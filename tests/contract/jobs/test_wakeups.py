"""News of work reaches every replica that listens; what was missed is said to have been missed."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from remuda.adapters.postgres.pool import Database, DatabaseSettings, open_database
from remuda.adapters.postgres.wakeups import PostgresWakeups
from remuda.adapters.system import SystemClock, SystemIds
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.wakeups import MemoryWakeups
from tests.support.eventually import within
from tests.support.jobs import StillClock, a_job, postgres_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from remuda.ports.jobs import JobStore
    from remuda.ports.wakeups import Wakeups


@dataclass(frozen=True, slots=True)
class Replicas:
    """One store, and as many listeners as the test wants."""

    jobs: JobStore
    another: Callable[[], Wakeups]


@pytest.fixture
async def replicas(place: str) -> AsyncIterator[Replicas]:
    if not place:
        tables = Tables(StillClock())
        yield Replicas(MemoryJobs(tables), lambda: MemoryWakeups(tables))
        return
    settings = DatabaseSettings(url=place, connections_min=1, connections_max=4)
    async with open_database(settings) as database:
        yield Replicas(postgres_store(database).jobs, lambda: wakeups(database))


def wakeups(database: Database, check_s: float = 10.0) -> PostgresWakeups:
    return PostgresWakeups(database, SystemClock(), SystemIds(), check_s=check_s)


async def test_the_first_news_is_to_look_everywhere(replicas: Replicas) -> None:
    async with replicas.another().listen() as news:
        assert await within(anext(news)) is None


async def test_every_replica_hears_of_each_job(replicas: Replicas) -> None:
    async with replicas.another().listen() as one, replicas.another().listen() as other:
        assert [await within(anext(one)), await within(anext(other))] == [None, None]
        await replicas.jobs.enqueue(a_job(1), by="test")
        await replicas.jobs.enqueue(a_job(2, pool="mac"), by="test")
        for news in (one, other):
            assert [await within(anext(news)) for _ in range(2)] == ["linux", "mac"]


async def test_a_listener_that_left_is_no_burden(replicas: Replicas) -> None:
    async with replicas.another().listen() as news:
        await within(anext(news))
    await replicas.jobs.enqueue(a_job(1), by="test")
    async with replicas.another().listen() as news:
        assert await within(anext(news)) is None


async def test_a_reader_that_is_cancelled_leaves_cleanly(replicas: Replicas) -> None:
    async with replicas.another().listen() as news:
        await within(anext(news))
        reading = asyncio.gather(anext(news))
        await asyncio.sleep(0)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading


async def test_in_memory_a_replica_that_was_cut_off_is_told_to_look_everywhere() -> None:
    tables = Tables(StillClock())
    jobs, here = MemoryJobs(tables), MemoryWakeups(tables)
    async with here.listen() as news:
        await within(anext(news))
        here.cut()
        await jobs.enqueue(a_job(1), by="test")
        here.reconnect()
        await jobs.enqueue(a_job(2, pool="mac"), by="test")
        assert [await within(anext(news)) for _ in range(2)] == [None, "mac"]


async def end_listeners(database: Database) -> int:
    """Close every other connection that listens, as an administrator would."""
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
        )
    return len(rows)


async def test_a_lost_connection_is_made_again_and_said(database: Database) -> None:
    jobs = postgres_store(database).jobs
    async with wakeups(database).listen() as news:
        assert await within(anext(news)) is None
        assert await end_listeners(database) == 1
        await jobs.enqueue(a_job(1), by="test")
        assert await within(anext(news)) is None
        await jobs.enqueue(a_job(2, pool="mac"), by="test")
        assert await within(anext(news)) == "mac"


class Silence:
    """A relay in front of the server that can fall silent: nothing goes through, and nothing is closed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.fallen = asyncio.Event()
        self.met = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met += 1
        silent = self.met == 1
        there, back = await asyncio.open_unix_connection(self._path)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await asyncio.gather(
                self._pass(reader, back, silent=silent), self._pass(there, writer, silent=silent)
            )
        back.close()
        writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, silent: bool
    ) -> None:
        while data := await reader.read(65536):
            if silent and self.fallen.is_set():
                continue
            writer.write(data)
            await writer.drain()
        writer.close()


async def test_a_connection_that_falls_silent_is_noticed(database_url: str) -> None:
    parts = urlsplit(database_url)
    asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
    relay = Silence(f"{asked['host']}/.s.PGSQL.{asked['port']}")
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    number = server.sockets[0].getsockname()[1]
    url = f"postgresql://{asked['user']}@127.0.0.1:{number}{parts.path}?sslmode=disable"
    settings = DatabaseSettings(url=url, connections_min=0, connections_max=1)
    try:
        async with (
            open_database(settings) as database,
            wakeups(database, check_s=0.2).listen() as news,
        ):
            assert await within(anext(news)) is None
            relay.fallen.set()
            assert await within(anext(news)) is None
            assert relay.met >= 2
    finally:
        server.close()
