"""The route of GitHub's messages over real HTTP: hostile, slow, endless and vanishing senders."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import pytest

from remuda.adapters.postgres.deliveries import PostgresDeliveries
from remuda.adapters.system import SystemClock
from remuda.dispatch.settings import IntakeSettings
from remuda.ports.database import DatabaseUnavailable
from remuda.sim.jobs.deliveries import MemoryDeliveries
from tests.support.eventually import eventually, within
from tests.support.webhooks import PATH, SECRET, Post, a_body, signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.adapters.postgres.pool import Database
    from remuda.ports.deliveries import Delivery

IMPATIENT = IntakeSettings(body_s=0.3, body_max_bytes=64 * 1024)
SIGNED = {"X-Hub-Signature-256": "sha256=" + "0" * 64}


class BrokenInbox(MemoryDeliveries):
    """An inbox whose database is away."""

    async def record(self, delivery: Delivery) -> bool:  # noqa: ARG002 - the port
        raise DatabaseUnavailable("No", why="secret-host refused postgres-user", fix="Wait")


@pytest.fixture
async def post(database: Database) -> AsyncIterator[Post]:
    deliveries = PostgresDeliveries(database, SystemClock())
    async with Post(deliveries, IMPATIENT).served() as served:
        yield served


@dataclass
class Answer:
    """What came back, raw."""

    status: int
    head: str
    body: bytes

    @property
    def problem(self) -> dict[str, object]:
        assert "application/problem+json" in self.head
        said: dict[str, object] = json.loads(self.body)
        assert set(said) == {"title", "status", "error", "why", "fix"}
        return said


class Sender:
    """A client that sends what it likes, when it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def head(self, headers: dict[str, str]) -> None:
        lines = [f"POST {PATH} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> Answer:
        head = (await within(self._reader.readuntil(b"\r\n\r\n"))).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
        body = await within(self._reader.readexactly(length))
        return Answer(int(head.split()[1]), head, body)

    async def is_cut_off(self) -> bool:
        try:
            return await within(self._reader.read()) == b""
        except ConnectionError:
            return True

    async def go(self) -> None:
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


@pytest.fixture
async def sender(post: Post) -> AsyncIterator[Sender]:
    async with _sending(post) as one:
        yield one


@contextlib.asynccontextmanager
async def _sending(post: Post) -> AsyncIterator[Sender]:
    sender = Sender(*await asyncio.open_connection("127.0.0.1", post.port))
    try:
        yield sender
    finally:
        await sender.go()


async def _send(post: Post, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(post.address + PATH, data=body, headers=headers) as answer,
    ):
        return answer.status, await answer.read()


# --- What is kept -----------------------------------------------------------------------------------------------------


async def test_a_message_is_durable_before_it_is_answered_and_its_copy_changes_nothing(
    post: Post, database: Database
) -> None:
    body = a_body()

    assert await _send(post, body, signed(body, "g1")) == (200, b"")
    async with database.connection() as other:  # another connection sees it: it is committed
        rows = await other.fetch("SELECT guid, body, subject FROM deliveries")
    assert [tuple(row) for row in rows] == [("g1", body, "github.com/1")]

    assert await _send(post, body, signed(body, "g1")) == (200, b"")
    assert await post.deliveries.backlog() == 1
    assert (post.counted("kept"), post.counted("duplicate")) == (1, 1)


async def test_a_hundred_senders_at_once_and_each_message_is_kept(post: Post) -> None:
    bodies = [a_body(number) for number in range(1, 301)]
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=100)) as session,
        asyncio.TaskGroup() as group,
    ):
        for number, body in enumerate(bodies):
            group.create_task(_post(session, post, body, f"g{number}"))
    assert await post.deliveries.backlog() == 300


async def _post(session: aiohttp.ClientSession, post: Post, body: bytes, guid: str) -> None:
    headers = signed(body, guid)
    async with session.post(post.address + PATH, data=body, headers=headers) as answer:
        assert answer.status == 200


async def test_a_body_in_pieces_is_read_whole(post: Post, sender: Sender) -> None:
    body = a_body(name="x" * 5000)
    await sender.head({**signed(body, "g1"), "Transfer-Encoding": "chunked"})
    for at in range(0, len(body), 500):
        piece = body[at : at + 500]
        await sender.send(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    await sender.send(b"0\r\n\r\n")

    assert (await sender.answer()).status == 200
    assert await post.deliveries.backlog() == 1


async def test_a_ping_is_answered_and_not_kept(post: Post) -> None:
    body = b'{"zen": "Speak like a human."}'
    headers = {**signed(body, "g1"), "X-GitHub-Event": "ping"}
    assert await _send(post, body, headers) == (200, b"")
    assert await post.deliveries.backlog() == 0


# --- What is refused --------------------------------------------------------------------------------------------------


async def test_an_unsigned_message_is_refused_before_a_byte_of_it_is_read(
    post: Post, sender: Sender
) -> None:
    await sender.head({"Content-Length": "1000", "Expect": "100-continue"})

    answer = await sender.answer()  # no "100 Continue" before it: nobody asks for the body

    assert answer.status == 401
    assert "signed" in str(answer.problem["error"])
    assert await sender.is_cut_off()
    assert post.counted("rejected_401") == 1


async def test_a_signature_of_no_form_is_refused_before_the_body_too(sender: Sender) -> None:
    await sender.head({"Content-Length": "1000", "X-Hub-Signature-256": "sha1=abc"})
    assert (await sender.answer()).status == 403


async def test_a_body_that_announces_itself_as_too_large_is_not_read(sender: Sender) -> None:
    await sender.head({**SIGNED, "Content-Length": str(64 * 1024 + 1)})
    answer = await sender.answer()
    assert answer.status == 413
    assert "65536 bytes" in str(answer.problem["why"])
    assert await sender.is_cut_off()


async def test_an_endless_body_in_pieces_is_cut_off(post: Post, sender: Sender) -> None:
    await sender.head({**SIGNED, "Transfer-Encoding": "chunked"})
    piece = b"x" * 4096
    for _ in range(17):
        await sender.send(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    assert (await sender.answer()).status == 413
    assert await sender.is_cut_off()
    assert post.counted("rejected_413") == 1


@pytest.mark.parametrize("drip", [b"", b"1\r\nx\r\n"], ids=["silent", "drip by drip"])
async def test_a_sender_that_is_too_slow_is_sent_away(
    post: Post, sender: Sender, drip: bytes
) -> None:
    await sender.head({**SIGNED, "Transfer-Encoding": "chunked"})

    async def dripping() -> None:
        while True:
            await sender.send(drip)
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        dripped = group.create_task(dripping())
        answer = await sender.answer()
        dripped.cancel()
    assert answer.status == 408
    assert await sender.is_cut_off()
    assert post.counted("rejected_408") == 1


async def test_a_sender_that_goes_in_the_middle_leaves_nothing(post: Post, sender: Sender) -> None:
    body = a_body()
    await sender.head({**signed(body, "g1"), "Content-Length": str(len(body))})
    await sender.send(body[:40])
    await asyncio.sleep(0.05)
    await sender.go()

    async def gone() -> float:
        return post.counted("client_gone")

    assert await eventually(gone) == 1
    assert await post.deliveries.backlog() == 0
    assert (await _send(post, body, signed(body, "g1")))[0] == 200


async def test_other_methods_and_paths_are_not_served(post: Post) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(post.address + PATH) as answer:
            assert answer.status == 405
        async with session.post(post.address + PATH + "/x") as answer:
            assert answer.status == 404


async def test_a_database_that_is_away_is_told_as_try_again_and_says_nothing_of_itself() -> None:
    async with Post(BrokenInbox(SystemClock()), IMPATIENT).served() as post:
        body = a_body()
        async with _sending(post) as sender:
            await sender.head({**signed(body, "g1"), "Content-Length": str(len(body))})
            await sender.send(body)
            answer = await sender.answer()

    assert answer.status == 503
    assert "retry-after: 5" in answer.head
    assert b"secret-host" not in answer.body
    assert answer.problem["fix"] == "Send it again"
    assert post.counted("not_kept") == 1


# --- Hundreds of broken ones ------------------------------------------------------------------------------------------


def _hurt(body: bytes, chance: random.Random) -> bytes:
    """Change, drop or add some bytes."""
    hurt = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(hurt))
        how = chance.randrange(3)
        if how == 0:
            hurt[at] ^= chance.randint(1, 255)
        elif how == 1:
            del hurt[at : at + chance.randint(1, 30)]
        else:
            hurt[at:at] = chance.choice([b"\0", b"\xff\xfe", b"null", b"}", b'"', b"[" * 200])
        hurt = hurt or bytearray(b"x")
    return bytes(hurt)


async def test_of_hundreds_of_changed_bodies_none_is_kept_and_none_breaks_the_server(
    post: Post,
) -> None:
    chance = random.Random(4)  # noqa: S311 - replays must be predictable
    body = a_body(name="build", head_branch="main", runner_name=None)
    async with aiohttp.ClientSession() as session:
        for number in range(300):
            headers = signed(body, f"g{number}")
            hurt = _hurt(body, chance)
            async with session.post(post.address + PATH, data=hurt, headers=headers) as answer:
                assert answer.status == (200 if hurt == body else 403)
    assert post.counted("kept") == 0


async def test_of_hundreds_of_odd_bodies_that_are_signed_none_breaks_the_server(
    post: Post,
) -> None:
    """GitHub, or who has its secret, sends nonsense: it is kept or ignored, and never an error of ours."""
    chance = random.Random(5)  # noqa: S311 - replays must be predictable
    body = a_body(name="build", head_branch="main", runner_name=None)
    async with aiohttp.ClientSession() as session:
        for number in range(300):
            hurt = _hurt(body, chance)
            headers = signed(hurt, f"g{number}", SECRET)
            async with session.post(post.address + PATH, data=hurt, headers=headers) as answer:
                assert answer.status == 200, hurt
    assert post.counted("malformed") > 100


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"X-GitHub-Delivery": ""}, id="no GUID"),
        pytest.param({"X-GitHub-Delivery": "g" * 4000}, id="an endless GUID"),
        pytest.param({"X-GitHub-Delivery": "g\xe9'; DROP TABLE deliveries"}, id="an odd GUID"),
        pytest.param({"X-GitHub-Event": "\xff" * 100}, id="an odd event"),
        pytest.param({"X-Hub-Signature-256": "sha256=\xe9"}, id="an odd signature"),
        pytest.param({"Content-Type": "application/x-www-form-urlencoded"}, id="no form"),
    ],
)
async def test_odd_headers_are_answered(
    post: Post, sender: Sender, headers: dict[str, str]
) -> None:
    body = a_body()
    sent = {**signed(body, "g1"), "Content-Length": str(len(body)), **headers}
    lines = [f"POST {PATH} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in sent.items())]
    await sender.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    assert (await sender.answer()).status in {200, 403}
    assert await post.deliveries.backlog() == 0
