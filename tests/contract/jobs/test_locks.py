"""Locks among replicas: one works at a time, the next takes over when it ends, is cancelled or loses its lock."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.postgres.locks import PostgresLocks
from remuda.adapters.postgres.pool import Database, DatabaseSettings, open_database
from remuda.adapters.system import SystemClock, SystemIds
from remuda.sim.jobs.locks import MemoryLocks
from remuda.sim.jobs.tables import Tables
from tests.support.eventually import eventually, within
from tests.support.jobs import StillClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from remuda.ports.locks import Locks

CHECK_S = 0.1


@dataclass(frozen=True, slots=True)
class Replicas:
    """As many processes as the test wants, and how they lose their locks."""

    another: Callable[[], Locks]
    lose: Callable[[Locks], Awaitable[None]]


@pytest.fixture
async def replicas(place: str) -> AsyncIterator[Replicas]:
    if not place:
        tables = Tables(StillClock())
        yield Replicas(lambda: MemoryLocks(tables), _forget)
        return
    settings = DatabaseSettings(url=place, connections_min=1, connections_max=2)
    async with open_database(settings) as database:

        async def lose(_: Locks) -> None:
            await end_holders(database)

        yield Replicas(lambda: locks(database), lose)


def locks(database: Database) -> PostgresLocks:
    return PostgresLocks(database, SystemClock(), SystemIds(), check_s=CHECK_S)


async def _forget(locks: Locks) -> None:
    assert isinstance(locks, MemoryLocks)
    locks.lose()


async def end_holders(database: Database) -> None:
    async with database.connection() as connection:
        await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 3"
        )


class Work:
    """Work that goes on until it is told to end, and tells how often it ran and whether two ever ran at once."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.running = 0
        self.at_most = 0
        self.runs = 0

    async def __call__(self) -> None:
        self.running += 1
        self.runs += 1
        self.at_most = max(self.at_most, self.running)
        self.began.set()
        try:
            await self.may_end.wait()
        finally:
            self.running -= 1


async def test_the_second_waits_until_the_first_is_done(replicas: Replicas) -> None:
    work = Work()
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(replicas.another().run_alone("sweep", work), name="replica")
        await within(work.began.wait())
        await asyncio.sleep(2 * CHECK_S)
        assert work.runs == 1
        work.may_end.set()
    assert (work.runs, work.at_most) == (3, 1)


async def test_two_in_one_process_take_turns_as_well(replicas: Replicas) -> None:
    work, here = Work(), replicas.another()
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(here.run_alone("sweep", work), name="twice")
        await within(work.began.wait())
        await asyncio.sleep(2 * CHECK_S)
        assert work.runs == 1
        work.may_end.set()
    assert (work.runs, work.at_most) == (2, 1)


async def test_other_names_are_other_locks(replicas: Replicas) -> None:
    one, other, here = Work(), Work(), replicas.another()
    async with asyncio.TaskGroup() as group:
        group.create_task(here.run_alone("one", one), name="one")
        group.create_task(here.run_alone("other", other), name="other")
        await within(one.began.wait())
        await within(other.began.wait())
        one.may_end.set()
        other.may_end.set()


async def test_a_cancelled_holder_makes_room(replicas: Replicas) -> None:
    first, second = Work(), Work()
    async with asyncio.TaskGroup() as group:
        holder = group.create_task(replicas.another().run_alone("sweep", first), name="first")
        await within(first.began.wait())
        group.create_task(replicas.another().run_alone("sweep", second), name="second")
        holder.cancel()
        await within(second.began.wait())
        assert first.running == 0
        second.may_end.set()


async def test_a_waiter_that_is_cancelled_takes_nothing_along(replicas: Replicas) -> None:
    first, second = Work(), Work()
    elsewhere = replicas.another()
    async with asyncio.TaskGroup() as group:
        group.create_task(replicas.another().run_alone("sweep", first), name="first")
        await within(first.began.wait())
        waiter = group.create_task(elsewhere.run_alone("sweep", Work()), name="waiter")
        await asyncio.sleep(CHECK_S)
        waiter.cancel()
        group.create_task(elsewhere.run_alone("sweep", second), name="second")
        first.may_end.set()
        await within(second.began.wait())
        second.may_end.set()


async def test_a_lost_lock_ends_the_work_and_can_be_waited_for_anew(replicas: Replicas) -> None:
    work, here = Work(), replicas.another()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(here.run_alone("sweep", work), name="holder")
        await within(work.began.wait())
        await replicas.lose(here)
        await within(asyncio.wait({task}))
        assert work.running == 0
    work.may_end.set()
    await within(here.run_alone("sweep", work))
    assert work.runs == 2


async def test_what_the_work_raises_is_raised_and_the_lock_is_free(replicas: Replicas) -> None:
    async def fail() -> None:
        raise LookupError

    here = replicas.another()
    with pytest.raises(LookupError):
        await within(here.run_alone("sweep", fail))
    work = Work()
    work.may_end.set()
    await within(replicas.another().run_alone("sweep", work))
    assert work.runs == 1


async def test_one_connection_serves_all_locks_of_a_process_and_goes_with_the_last(
    database: Database,
) -> None:
    works = [Work() for _ in range(4)]
    here = locks(database)
    count = "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 3"
    async with database.connection() as connection:
        async with asyncio.TaskGroup() as group:
            for number, work in enumerate(works):
                group.create_task(here.run_alone(f"lock {number}", work), name=f"{number}")
            for work in works:
                await within(work.began.wait())
            assert await connection.fetchval(count) == 1
            for work in works:
                work.may_end.set()
        await eventually(lambda: connection.fetchval(count), lambda held: held == 0)


async def test_works_without_a_database_wait_for_it(database_url: str) -> None:
    settings = DatabaseSettings(url=database_url, connections_min=0, connections_max=1)
    async with open_database(settings) as database:
        nowhere = DatabaseSettings(url="postgresql://127.0.0.1:9/none", connect_deadline_s=0.2)
        work, here = Work(), locks(Database(database._pool, nowhere))  # noqa: SLF001 - a pool is not needed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await here.run_alone("sweep", work)
        assert work.runs == 0


class FrozenClock(SystemClock):
    """A clock on which no time passes once it is frozen: no check is due any more, as in a process that is stopped."""

    frozen = False

    def monotonic(self) -> float:
        return 0.0 if self.frozen else super().monotonic()


async def test_the_locks_of_a_process_that_falls_silent_are_free_soon(database: Database) -> None:
    clock, first, second = FrozenClock(), Work(), Work()
    holder = PostgresLocks(database, clock, SystemIds(), check_s=CHECK_S)
    async with asyncio.TaskGroup() as group:
        group.create_task(holder.run_alone("sweep", first), name="holder")
        await within(first.began.wait())
        clock.frozen = True
        group.create_task(locks(database).run_alone("sweep", second), name="second")
        await within(second.began.wait())
        second.may_end.set()
    assert first.running == 0
