"""
Polls of runners over HTTP: how soon a job is in a runner's hand, what idle runners cost, how many are served.

The server runs as ``remuda server`` does, in a process of its own, with uvicorn on uvloop, on a real PostgreSQL; the
cluster and the forge answer at once, inside it. What it is compared with runs in the same run on the same PostgreSQL:
a job that is inserted, told of with NOTIFY and claimed with one raw ``SKIP LOCKED`` update, and that update alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, cast

import uvloop

from remuda.adapters.garbage import spare_what_stays
from remuda.adapters.postgres.api_tokens import PostgresApiTokens
from remuda.adapters.postgres.embedded import EmbeddedPostgres
from remuda.adapters.postgres.job_views import PostgresJobViews
from remuda.adapters.postgres.jobs import HAND_OVERS_TOGETHER, PostgresJobs
from remuda.adapters.postgres.migrate import migrate
from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from remuda.adapters.postgres.registrations import PostgresRegistrations
from remuda.adapters.postgres.wakeups import PostgresWakeups
from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.logs import set_up_logs
from remuda.model.job import Os, Session, Size
from remuda.ports.jobs import Running
from tests.bench.claims import EMPTY, FILL, RAW_CLAIM, RAW_TABLE
from tests.bench.instant_kube import InstantKube, token_of
from tests.support.forges import SmallForge
from tests.support.jobs import a_job
from tests.support.polls import PollPorts, a_poll_server
from tests.support.postgres import private_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from remuda.adapters.postgres.pool import Database
    from remuda.model.job import Claim, Job
    from remuda.ports.jobs import Stale
    from remuda.ports.kube import Kube
    from remuda.ports.registrations import Registration

WAITING = 1_000
JOBS = 200
PER_S = 50
IDLE_S = 10.0
CLAIMERS = 32
CLAIMS = 1_000
ROUNDS = 5
PODS = WAITING + ROUNDS * (WAITING + JOBS) + (ROUNDS + 1) * CLAIMS
TENANTS, REPOSITORIES = 16, 4

P50_TARGET, P99_TARGET = 3.0, 6.0
IDLE_TARGET = 20.0
CLAIMS_TARGET = 0.35

PING_TABLE = "CREATE TABLE IF NOT EXISTS ping_jobs (LIKE raw_jobs INCLUDING ALL)"
PING_INSERT = """
INSERT INTO ping_jobs (id, kind, tenant, repository, pool, os, vcpus, memory_mib, label, labels, name, workflow, branch,
    commit, url, fork, queued_at, state, attempts)
VALUES ($1, 'github', 'acme', 'acme/app', 'linux', 'linux', 2, 4096, 'fast', '{self-hosted,fast}', 'build', 'ci',
    'main', 'abc', '', false, now(), 'queued', 0)
"""
PING_CLAIM = RAW_CLAIM.replace("raw_jobs", "ping_jobs")


# --- The server, in its own process -----------------------------------------------------------------------------------


class ClaimsOnly(PostgresJobs):
    """A store that claims and writes nothing after that: what is measured through it is a claim and its way there."""

    async def mark_running(
        self,
        claim: Claim,
        runner_name: str,
        *,
        registered: Registration | None = None,
        job: Job | None = None,
    ) -> Running | Stale:
        del registered
        assert job is not None
        spec, size = job.spec, job.spec.size
        session = Session(
            pod=claim.pod,
            pod_uid=claim.pod_uid,
            job_id=spec.id,
            tenant=spec.tenant,
            repository=spec.repository,
            pool=spec.pool,
            os=spec.os,
            size=size,
            runner_name=runner_name,
            started_at=claim.claimed_at,
        )
        return Running(job, session)


STORES = {"hand-overs": PostgresJobs, "claims": ClaimsOnly}


async def serve(url: str, what: str) -> None:
    """Serve until told to end. Answers each line on stdin with the number of statements so far."""
    settings = DatabaseSettings(url=url, connections_min=CLAIMERS, connections_max=CLAIMERS)
    async with open_database(settings) as database:
        counted = await _counted(database)
        clock = SystemClock()
        ports = PollPorts(
            kube=cast("Kube", InstantKube(PODS)),
            store=STORES[what](database, clock, most=HAND_OVERS_TOGETHER),
            views=PostgresJobViews(database, clock),
            registrations=PostgresRegistrations(database, clock),
            wakeups=PostgresWakeups(database, clock, SystemIds()),
            tokens=PostgresApiTokens(database, clock),
            forge=SmallForge(),
        )
        async with a_poll_server(ports) as server:
            spare_what_stays()
            print(server.port, flush=True)
            loop = asyncio.get_running_loop()
            while await loop.run_in_executor(None, sys.stdin.readline):
                print(counted[0], flush=True)


async def _counted(database: Database) -> list[int]:
    """Count the statements of every connection of the pool."""
    count = [0]

    def note(_: object) -> None:
        count[0] += 1

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(CLAIMERS):
            connection: Any = await stack.enter_async_context(database.connection())
            connection.add_query_logger(note)
    return count


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    stdin: IO[str]
    stdout: IO[str]

    def statements(self) -> int:
        self.stdin.write("\n")
        self.stdin.flush()
        return int(self.stdout.readline())


@contextlib.contextmanager
def server(url: str, what: str = "hand-overs") -> Iterator[Server]:
    command = [sys.executable, "-m", "tests.bench.polls", url, what]
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Server(int(process.stdout.readline()), process.stdin, process.stdout)
        finally:
            process.terminate()


# --- Runners ----------------------------------------------------------------------------------------------------------


class Runner(asyncio.Protocol):
    """One connection that polls, as small as can be: it stands for a thousand machines on one."""

    def __init__(self) -> None:
        self._answered: asyncio.Future[bytes] | None = None
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, whole, body = self._received.partition(b"\r\n\r\n")
        if not whole or self._answered is None:
            return
        if b" 204 " in head[:20] or len(body) >= _length(head):
            self._received = b""
            if not self._answered.done():
                self._answered.set_result(head + b"\n" + body)

    async def poll(self, pod: str, wait_s: int) -> bytes:
        assert self._transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(
            f"POST /api/v1/dispatch HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\nPrefer: wait={wait_s}\r\n"
            f"Authorization: Bearer {token_of(pod)}\r\n\r\n".encode()
        )
        return await self._answered

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


@contextlib.asynccontextmanager
async def runners(port: int, count: int) -> AsyncIterator[list[Runner]]:
    loop = asyncio.get_running_loop()
    found = []
    for _ in range(count):
        _, runner = await loop.create_connection(Runner, "127.0.0.1", port)
        found.append(runner)
    try:
        yield found
    finally:
        for runner in found:
            runner.close()


# --- Measurements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """One database, one server, and Pods that never asked before."""

    database: Database
    server: Server
    pods: Iterator[int]

    def pod(self) -> str:
        return f"pod-{next(self.pods)}"

    async def empty(self, tenants: int = 1) -> PostgresJobs:
        async with self.database.connection() as c:
            await c.execute(EMPTY)
            await c.execute("TRUNCATE ping_jobs, registrations")
        jobs = PostgresJobs(self.database, SystemClock())
        for tenant in range(tenants):
            limit = Size(1_000_000, 4_000_000_000)
            await jobs.set_limits(f"tenant-{tenant}", Os.LINUX, limit, by="bench")
        return jobs

    # --- Queued to in hand ---

    async def in_hand(self) -> list[float]:
        """Return how long each job took from its insertion to the runner, with all the others waiting."""
        jobs = await self.empty()
        began: dict[str, float] = {}
        took: list[float] = []

        async def run(runner: Runner) -> None:
            pod = self.pod()
            while len(took) < JOBS:
                answer = await runner.poll(pod, 30)
                if b" 200 " in answer[:20]:
                    job = answer.partition(b'"job_id":"')[2].partition(b'"')[0].decode()
                    took.append(perf_counter() - began[job])
                    pod = self.pod()

        async with runners(self.server.port, WAITING) as everyone:
            tasks = await _started(run, everyone)
            await paced(lambda number: self._enqueue(jobs, number, began))
            while len(took) < JOBS:  # noqa: ASYNC110 - an Event would take part in what is measured
                await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return took

    async def _enqueue(self, jobs: PostgresJobs, number: int, began: dict[str, float]) -> None:
        spec = a_job(number, tenant="tenant-0", queued_at=SystemClock().now())
        began[spec.id] = perf_counter()
        await jobs.enqueue(spec, by="bench")

    async def ping_pong(self) -> list[float]:
        """Return how long a row takes from its insertion, told of by NOTIFY, to a raw claim of it."""
        took: list[float] = []
        began: list[float] = []
        async with self.database.connection() as c:
            await c.execute("TRUNCATE ping_jobs")
        async with self.database.dedicated() as ear, self.database.dedicated() as hand:
            heard: asyncio.Queue[None] = asyncio.Queue()
            await ear.add_listener("ping", lambda *_: heard.put_nowait(None))

            async def claim() -> None:
                for number in range(JOBS):
                    await heard.get()
                    row = await hand.fetchrow(PING_CLAIM, "p", "u", SystemClock().now())
                    assert row is not None
                    took.append(perf_counter() - began[number])

            async with asyncio.TaskGroup() as group:
                group.create_task(claim())
                await paced(lambda number: self._ping(number, began))
        return took

    async def _ping(self, number: int, began: list[float]) -> None:
        began.append(perf_counter())
        async with self.database.connection() as c, c.transaction():
            await c.execute(PING_INSERT, f"ping/{number}")
            await c.execute("SELECT pg_notify('ping', $1)", str(number))

    # --- Idle runners ---

    async def idle(self) -> float:
        """Return how many statements per second a server of a thousand waiting runners asks."""
        await self.empty()

        async def run(runner: Runner) -> None:
            pod = self.pod()
            while True:
                await runner.poll(pod, 3)

        async with runners(self.server.port, WAITING) as everyone:
            tasks = await _started(run, everyone)
            await asyncio.sleep(3)
            before, start = self.server.statements(), perf_counter()
            await asyncio.sleep(IDLE_S)
            rate = (self.server.statements() - before) / (perf_counter() - start)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return rate

    # --- How many ---

    async def fill(self) -> None:
        await self.empty(TENANTS)
        async with self.database.connection() as c:
            for table in ("jobs", "raw_jobs"):
                filled = FILL.format(table=table)
                await c.execute(filled, 4 * CLAIMS, TENANTS, REPOSITORIES, timeout=60)
            await c.execute("VACUUM ANALYZE jobs", timeout=60)
            await c.execute("VACUUM ANALYZE raw_jobs", timeout=60)

    async def rate(self, ask: list[Callable[[], Awaitable[None]]]) -> float:
        left = iter(range(CLAIMS))

        async def asking(one: Callable[[], Awaitable[None]]) -> None:
            for _ in left:
                await one()

        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(ask):
                group.create_task(asking(one), name=f"asks {number}")
        return CLAIMS / (perf_counter() - start)

    async def raw(self) -> None:
        async with self.database.connection() as c:
            row = await c.fetchrow(RAW_CLAIM, "pod", "uid", SystemClock().now())
            assert row is not None

    def over_http(self, runner: Runner) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            answer = await runner.poll(self.pod(), 20)
            assert b" 200 " in answer[:20], answer[:200]

        return ask


async def _started(
    run: Callable[[Runner], Awaitable[None]], everyone: list[Runner]
) -> list[asyncio.Task[None]]:
    """Have every runner poll; what they do is ended by cancelling it."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_coroutine(run, runner)) for runner in everyone]
    await asyncio.sleep(2)
    return tasks


async def _coroutine(run: Callable[[Runner], Awaitable[None]], runner: Runner) -> None:
    await run(runner)


async def paced(do: Callable[[int], Awaitable[None]]) -> None:
    """Do something so many times a second, on time: whatever one of them takes."""
    start = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(JOBS):
            await asyncio.sleep(max(0.0, start + number / PER_S - perf_counter()))
            group.create_task(_done(do, number))


async def _done(do: Callable[[int], Awaitable[None]], number: int) -> None:
    await do(number)


def said(met: bool) -> str:  # noqa: FBT001 - a verdict
    return "met" if met else "MISSED"


async def compare_latency(bench: Bench) -> bool:
    """Compare rounds with what was measured right before and after each: the machine is not alike for long."""
    ours: list[float] = []
    ratios: list[float] = []
    base = before = await bench.ping_pong()
    for _ in range(ROUNDS):
        took = await bench.in_hand()
        after = await bench.ping_pong()
        ratios.append(median(took) / median(before + after))
        ours, base, before = ours + took, base + after, after
    p50, p99 = median(ratios), _p99(ours) / _p99(base)
    met = p50 <= P50_TARGET and p99 <= P99_TARGET
    print(
        f"polls: queued to in hand with {WAITING:,} waiting at {PER_S}/s:"
        f" p50 {1e3 * median(ours):.1f} ms, p99 {1e3 * _p99(ours):.1f} ms;"
        f" insert + NOTIFY + raw claim {1e3 * median(base):.1f} and {1e3 * _p99(base):.1f} ms:"
        f" {p50:.1f} x ({min(ratios):.1f} to {max(ratios):.1f}) and {p99:.1f} x"
        f" (target <= {P50_TARGET:g} and {P99_TARGET:g}, {said(met)})"
    )
    return met


def _p99(took: list[float]) -> float:
    return quantiles(took, n=100)[98]


@dataclass(frozen=True, slots=True)
class Rates:
    """What 32 runners get that ask all the time, beside the raw updates before and after."""

    rates: list[float] = field(default_factory=list)
    raws: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [rate / raw for rate, raw in zip(self.rates, self.raws, strict=True)]

    def __str__(self) -> str:
        ratios = self.ratios
        return (
            f"{median(self.rates):,.0f}/s, raw updates {median(self.raws):,.0f}/s:"
            f" {median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"
        )


async def measure_rates(bench: Bench) -> Rates:
    found = Rates()
    async with runners(bench.server.port, CLAIMERS) as everyone:
        over_http = [bench.over_http(runner) for runner in everyone]
        for _ in range(ROUNDS):
            await bench.fill()
            before = await bench.rate([bench.raw] * CLAIMERS)
            # All jobs came in one transaction, as no intake brings them, and so with one wake-up: until the hub's next
            # beat the server believes in one job. The rate is how fast it hands over what it knows of; what the first
            # runners wait for that is said beside it.
            start = perf_counter()
            await asyncio.gather(*(ask() for ask in over_http))
            found.waits.append(perf_counter() - start)
            found.rates.append(await bench.rate(over_http))
            found.raws.append((before + await bench.rate([bench.raw] * CLAIMERS)) / 2)
    return found


def tell_claims(claims: Rates, whole: Rates) -> bool:
    met = median(claims.ratios) >= CLAIMS_TARGET
    print(
        f"polls: claims through HTTP with token check, stamp and mint: {claims}"
        f" (target >= {CLAIMS_TARGET}, {said(met)});"
        f" whole hand-overs, each also written down as running with its session: {whole};"
        f" where {4 * CLAIMS:,} jobs come at once, the last of {CLAIMERS} runners has one"
        f" after {median(whole.waits):.2f} s ({min(whole.waits):.2f} to {max(whole.waits):.2f})"
    )
    return met


async def compare_idle(bench: Bench) -> bool:
    rate = await bench.idle()
    met = rate <= IDLE_TARGET
    print(
        f"polls: {WAITING:,} idle runners cost {rate:.1f} statements/s (target <= {IDLE_TARGET:g}, {said(met)})"
    )
    return met


async def measure(url: str) -> bool:
    await migrate(DatabaseSettings(url=url))
    settings = DatabaseSettings(url=url, connections_min=CLAIMERS, connections_max=CLAIMERS)
    async with open_database(settings) as database:
        async with database.connection() as c:
            await c.execute(RAW_TABLE)
            await c.execute(PING_TABLE)
        with server(url) as running:
            bench = Bench(database, running, itertools.count())
            met = [await compare_idle(bench)]
            met.append(await compare_latency(bench))
            whole = await measure_rates(bench)
        with server(url, "claims") as running:
            claims = await measure_rates(Bench(database, running, itertools.count()))
        met.append(tell_claims(claims, whole))
    return all(met)


def main() -> int:
    if len(sys.argv) > 1:
        set_up_logs("json")
        uvloop.run(serve(*sys.argv[1:]))
        return 0
    folder = private_folder()
    postgres = EmbeddedPostgres(folder)
    try:
        with asyncio.Runner() as runner:  # uvloop cannot start a process as another user
            runner.run(postgres.__aenter__())
            try:
                return 0 if uvloop.run(measure(postgres.dsn_of("postgres"))) else 1
            finally:
                runner.run(postgres.__aexit__(None, None, None))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
