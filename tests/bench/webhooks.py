"""
Messages taken in over HTTP, checked and durable, beside a raw ``INSERT … ON CONFLICT``: same run, same PostgreSQL.

Both are sent by 32 tasks of one process, in turns, with the same bodies, and both commit durably. The raw one sends its
rows straight to PostgreSQL over 32 connections; the other sends signed messages to a server that runs as ``remuda
server`` does, in a process of its own, over 32 connections that stay open.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import uvloop

from remuda.adapters.postgres.deliveries import PostgresDeliveries
from remuda.adapters.postgres.embedded import EmbeddedPostgres
from remuda.adapters.postgres.migrate import migrate
from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from remuda.adapters.system import SystemClock
from remuda.cli.logs import set_up_logs
from tests.support.postgres import private_folder
from tests.support.webhooks import PATH, Post, a_body, signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from remuda.adapters.postgres.pool import Database

SENDERS = 32
MESSAGES = 2_000
ROUNDS = 5
TARGET = 0.4
FILLER = {f"step {number}": "x" * 100 for number in range(80)}
"""A ``workflow_job`` of GitHub has some 10 KB, most of which nobody reads."""

RAW_TABLE = "CREATE TABLE raw_deliveries (LIKE deliveries INCLUDING ALL)"
RAW_INSERT = """
INSERT INTO raw_deliveries (guid, event, subject, body, received_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING guid
"""
EMPTY = "TRUNCATE deliveries, raw_deliveries"


@dataclass(frozen=True, slots=True)
class Message:
    """One message, for both ways."""

    guid: str
    body: bytes
    request: bytes


def a_message(number: int) -> Message:
    body = a_body(number, steps=FILLER)
    guid = f"{number:08}-bench"
    head = [f"POST {PATH} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
    lines = [*head, *(f"{name}: {value}" for name, value in signed(body, guid).items()), "", ""]
    return Message(guid, body, "\r\n".join(lines).encode() + body)


async def rate(senders: list[Callable[[Message], Awaitable[None]]], first: int) -> float:
    """Return the messages per second of those who send all the time."""
    messages = [a_message(number) for number in range(first, first + MESSAGES)]
    left = iter(messages)

    async def sending(send: Callable[[Message], Awaitable[None]]) -> None:
        for message in left:
            await send(message)

    start = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, send in enumerate(senders):
            group.create_task(sending(send), name=f"sender {number}")
    return MESSAGES / (perf_counter() - start)


def raw(database: Database) -> Callable[[Message], Awaitable[None]]:
    async def send(message: Message) -> None:
        values = (message.guid, "workflow_job", message.guid, message.body, SystemClock().now())
        async with database.connection() as c:
            assert await c.fetchval(RAW_INSERT, *values) is not None

    return send


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Callable[[Message], Awaitable[None]]]:
    """Keep one connection open and send over it, each message after the answer to the one before."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send(message: Message) -> None:
        writer.write(message.request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head

    try:
        yield send
    finally:
        writer.close()
        await writer.wait_closed()


@contextlib.contextmanager
def server(url: str) -> Iterator[int]:
    """Run a server in a process of its own, and give its port."""
    command = [sys.executable, "-m", "tests.bench.webhooks", url]
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def serve(url: str) -> None:
    settings = DatabaseSettings(url=url)
    async with open_database(settings) as database:
        deliveries = PostgresDeliveries(database, SystemClock())
        async with Post(deliveries).served() as post:
            print(post.port, flush=True)
            await asyncio.Event().wait()


async def compare(database: Database, port: int) -> bool:
    """Measure messages over HTTP between two raw rounds each, and print what they reach."""
    firsts = itertools.count(1, MESSAGES)
    rates, raws, ratios = [], [], []
    async with contextlib.AsyncExitStack() as stack:
        over_http = [await stack.enter_async_context(connected(port)) for _ in range(SENDERS)]
        straight = [raw(database)] * SENDERS
        for _ in range(ROUNDS):
            async with database.connection() as c:
                await c.execute(EMPTY)
                await c.execute("CHECKPOINT", timeout=60)
            before = await rate(straight, next(firsts))
            taken_in = await rate(over_http, next(firsts))
            raws.append((before + await rate(straight, next(firsts))) / 2)
            rates.append(taken_in)
            ratios.append(taken_in / raws[-1])
    met = median(ratios) >= TARGET
    print(
        f"webhooks: {median(rates):,.0f}/s over HTTP, checked and durable; raw inserts {median(raws):,.0f}/s:"
        f" {median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f}; target >= {TARGET},"
        f" {'met' if met else 'MISSED'})"
    )
    return met


async def measure(url: str) -> bool:
    await migrate(DatabaseSettings(url=url))
    settings = DatabaseSettings(url=url, connections_min=SENDERS, connections_max=SENDERS)
    async with open_database(settings) as database:
        async with database.connection() as c:
            await c.execute(RAW_TABLE)
        with server(url) as port:
            return await compare(database, port)


def main() -> int:
    if len(sys.argv) > 1:
        set_up_logs("json")
        uvloop.run(serve(sys.argv[1]))
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
