"""
The claim with its whole policy beside a raw one-row ``SKIP LOCKED`` update: same run, same PostgreSQL, 32 at once.

Both are asked by 32 tasks of one process over 32 connections, in turns. The raw one knows neither tenants nor limits
nor fencing nor audit, and writes down no runner: it is what a queue in PostgreSQL costs at least. Both wait for the
disk; what the raw one does without waiting is printed beside it.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from remuda.adapters.postgres.embedded import EmbeddedPostgres
from remuda.adapters.postgres.jobs import HAND_OVERS_TOGETHER, PostgresJobs
from remuda.adapters.postgres.migrate import migrate
from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from remuda.adapters.postgres.together import TOGETHER_MAX
from remuda.adapters.system import SystemClock
from remuda.model.job import Os, Size
from remuda.ports.jobs import Claimed, NoJob, NothingToDo, WarmRunner
from tests.support.postgres import private_folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from remuda.adapters.postgres.pool import Database

CLAIMERS = 32
CLAIMS = 1_500
ROUNDS = 5
TENANTS = (4, 32)
REPOSITORIES = 4
TARGET = 0.8
WAYS = (TOGETHER_MAX, HAND_OVERS_TOGETHER, 1)

RAW_TABLE = """
CREATE TABLE IF NOT EXISTS raw_jobs (LIKE jobs);
ALTER TABLE raw_jobs DROP CONSTRAINT IF EXISTS raw_jobs_pkey, ADD CONSTRAINT raw_jobs_pkey PRIMARY KEY (id);
CREATE INDEX IF NOT EXISTS raw_jobs_queue ON raw_jobs (queued_at, id) WHERE state = 'queued';
"""
RAW_CLAIM = """
UPDATE raw_jobs SET state = 'claimed', pod = $1, pod_uid = $2, claimed_at = $3 WHERE id = (
    SELECT id FROM raw_jobs WHERE state = 'queued' ORDER BY queued_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING *
"""
UNWAITING = "set_config('synchronous_commit', 'off', true)"
FILL = """
INSERT INTO {table} (id, kind, tenant, repository, pool, os, vcpus, memory_mib, label, labels, name, workflow, branch,
    commit, url, fork, queued_at, state, attempts)
SELECT 'bench/' || n, 'github', 'tenant-' || n % $2, 'tenant-' || n % $2 || '/' || n / $2 % $3, 'linux', 'linux', 2,
    4096, 'fast', '{{self-hosted,fast}}', 'build', 'ci', 'main', 'abc', '', false,
    now() - interval '1 hour' + n * interval '1 ms', 'queued', 0
FROM generate_series(1, $1) AS n
"""
EMPTY = "TRUNCATE jobs, claims, sessions, completions, limits, decisions, registrations, raw_jobs"


@dataclass(frozen=True, slots=True)
class Bench:
    """One database, and Pods that never asked before."""

    database: Database
    pods: Iterator[int]

    async def fill(self, tenants: int) -> None:
        async with self.database.connection() as c:
            await c.execute(EMPTY)
            for table in ("jobs", "raw_jobs"):
                filled = FILL.format(table=table)
                await c.execute(filled, 5 * CLAIMS, tenants, REPOSITORIES, timeout=60)
            await c.execute("VACUUM ANALYZE jobs", timeout=60)
            await c.execute("VACUUM ANALYZE raw_jobs", timeout=60)
        jobs = PostgresJobs(self.database, SystemClock())
        for tenant in range(tenants):
            limit = Size(1_000_000, 4_000_000_000)
            await jobs.set_limits(f"tenant-{tenant}", Os.LINUX, limit, by="bench")

    async def rate(self, claim: Callable[[str], Awaitable[object]]) -> float:
        """Return the claims per second of 32 who ask all the time."""
        left = iter(range(CLAIMS))

        async def claimer() -> None:
            for _ in left:
                assert await claim(f"pod-{next(self.pods)}") is not None

        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(CLAIMERS):
                group.create_task(claimer(), name=f"claimer {number}")
        return CLAIMS / (perf_counter() - start)

    def raw(self, *, waits: bool = True) -> Callable[[str], Awaitable[object]]:
        statement = RAW_CLAIM if waits else f"{RAW_CLAIM}, {UNWAITING}"

        async def claim(pod: str) -> object:
            async with self.database.connection() as c:
                return await c.fetchrow(statement, pod, f"uid-{pod}", SystemClock().now())

        return claim

    def full(self, most: int) -> Callable[[str], Awaitable[object]]:
        """Claim with the whole policy, for so many in one statement; 1: each by itself, all at once."""

        def a_store() -> PostgresJobs:
            return PostgresJobs(self.database, SystemClock(), wait=timedelta(seconds=5), most=most)

        shared = a_store()

        async def claim(pod: str) -> object:
            jobs = a_store() if most == 1 else shared
            while True:
                answer = await jobs.claim(WarmRunner(pod, f"uid-{pod}", "linux", f"r-{pod}"))
                if isinstance(answer, Claimed):
                    return answer
                assert isinstance(answer, NothingToDo)
                assert answer.reason in {NoJob.BUSY, NoJob.LOST_RACE}, answer

        return claim


async def compare(bench: Bench, tenants: int) -> bool:
    """Measure each way of claiming between two raw rounds, and print what they reach."""
    ratios: dict[int, list[float]] = {most: [] for most in WAYS}
    rates: dict[int, list[float]] = {most: [] for most in WAYS}
    raws, unwaiting = [], []
    for _ in range(ROUNDS):
        for most in WAYS:
            await bench.fill(tenants)
            before = await bench.rate(bench.raw())
            rate = await bench.rate(bench.full(most))
            raw = (before + await bench.rate(bench.raw())) / 2
            raws.append(raw)
            if most == TOGETHER_MAX:
                unwaiting.append(rate / await bench.rate(bench.raw(waits=False)))
            rates[most].append(rate)
            ratios[most].append(rate / raw)
    together = ratios[TOGETHER_MAX]
    met = median(together) >= TARGET
    print(
        f"claims, {tenants} tenants: {median(rates[TOGETHER_MAX]):,.0f}/s with the whole policy,"
        f" raw {median(raws):,.0f}/s:"
        f" {median(together):.2f} x ({min(together):.2f} to {max(together):.2f};"
        f" target >= {TARGET}, {'met' if met else 'MISSED'});"
        f" beside one that does not wait for the disk {median(unwaiting):.2f} x;"
        f" {HAND_OVERS_TOGETHER} in a statement, as a server asks, {median(ratios[HAND_OVERS_TOGETHER]):.2f} x;"
        f" one by one {median(rates[1]):,.0f}/s, {median(ratios[1]):.2f} x"
    )
    return met


async def measure() -> bool:
    folder = private_folder()
    try:
        async with EmbeddedPostgres(folder) as postgres:
            settings = DatabaseSettings(
                url=postgres.dsn_of("postgres"),
                connections_min=CLAIMERS,
                connections_max=CLAIMERS,
            )
            await migrate(settings)
            async with open_database(settings) as database:
                async with database.connection() as c:
                    await c.execute(RAW_TABLE)
                bench = Bench(database, itertools.count())
                met = [await compare(bench, tenants) for tenants in TENANTS]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return all(met)


def main() -> int:
    return 0 if asyncio.run(measure()) else 1


if __name__ == "__main__":
    sys.exit(main())
