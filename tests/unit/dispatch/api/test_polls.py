"""The runners' poll over HTTP, on real sockets that are closed, half-closed, reset and filled with rubbish."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from remuda.dispatch.api.polls import BODY_MAX_BYTES
from remuda.dispatch.attempt import Step
from remuda.dispatch.settings import PollSettings
from remuda.kube.core import POD
from remuda.kube.patches import MergePatch
from remuda.model.job import JobState
from tests.support.eventually import eventually, within
from tests.support.forges import CANARY
from tests.support.polls import SETTINGS, a_poll_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.ports.wire import Request, Response, Wire
    from tests.support.polls import PollWorld

LINGER_NOT = struct.pack("ii", 1, 0)


@dataclass
class Client:
    """A connection, as bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(
        self, token: str, *headers: str, body: bytes = b"{}", length: int | None = None
    ) -> None:
        lines = [
            "POST /api/v1/dispatch HTTP/1.1",
            "Host: dispatch",
            f"Content-Length: {len(body) if length is None else length}",
            *([f"Authorization: Bearer {token}"] if token else []),
            *headers,
        ]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await within(self.reader.readuntil(b"\r\n\r\n"))).decode().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        body = await within(self.reader.readexactly(int(headers.get("content-length", "0"))))
        return int(head[0].split()[1]), headers, body

    def reset(self) -> None:
        """Close without a word: the other side hears of it by a reset."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self.writer.transport.abort()


@asynccontextmanager
async def connected(world: PollWorld) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.server.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def is_waiting(world: PollWorld, count: int = 1) -> None:
    async def waiting() -> float:
        return world.server.waiting

    await eventually(waiting, lambda found: found == count)


async def test_a_job_is_one_line_of_json_that_nobody_keeps() -> None:
    async with a_poll_world() as world, connected(world) as client:
        token = await world.add_pod()
        client.send(token, "Prefer: wait=20")
        await is_waiting(world)
        await world.queue(1)
        status, headers, body = await client.answer()

        job = json.loads(body)
        assert status == 200
        assert headers["cache-control"] == "no-store"
        assert headers["content-type"] == "application/json"
        assert b"\n" not in body
        assert job["encoded_jit_config"].startswith(CANARY)
        assert {k: job[k] for k in ("job_id", "owner", "kind", "deadline")} == {
            "job_id": "forge/1",
            "owner": "acme",
            "kind": "github",
            "deadline": None,
        }
        assert re.fullmatch(r"a-[0-9a-f]{8}", job["runner_name"])
        assert world.state() is JobState.RUNNING


@pytest.mark.parametrize("ending", ["close", "half-close", "reset", "rubbish"])
async def test_a_poll_whose_client_goes_ends_at_once_and_claims_nothing(ending: str) -> None:
    async with a_poll_world() as world, connected(world) as client:
        client.send(await world.add_pod(), "Prefer: wait=30")
        await is_waiting(world)
        match ending:
            case "close":
                client.writer.close()
            case "half-close":
                client.writer.write_eof()
            case "reset":
                client.reset()
            case _:
                client.writer.write(b"\x00\xff GET / NOT HTTP \r\n\r\n")
        await is_waiting(world, 0)
        await world.queue(1)

        async with connected(world) as other:
            other.send(await world.add_pod("b"), "Prefer: wait=20")
            assert (await other.answer())[0] == 200
        assert world.server.polled("client_gone") == 1
        assert world.tables.jobs["forge/1"].attempts == 1, "nobody else had it"


class Hangs:
    """A wire to an API server that answers all but reviews of tokens."""

    def __init__(self, inner: Wire) -> None:
        self._inner = inner
        self.reviews = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a wire does
        return getattr(self._inner, name)

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        if not request.path.endswith("/tokenreviews"):
            return await self._inner.send(request, timeout_s=timeout_s)
        self.reviews += 1
        try:
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            self.reviews -= 1


async def test_a_client_that_goes_while_nobody_knows_who_it_is_is_forgotten_at_once() -> None:
    hangs: list[Hangs] = []

    def through(wire: Wire) -> Wire:
        hangs.append(Hangs(wire))
        return hangs[0]

    async def reviews() -> int:
        return hangs[0].reviews

    async with a_poll_world(through=through) as world, connected(world) as client:
        client.send(await world.add_pod(), "Prefer: wait=30")
        await eventually(reviews, lambda found: found == 1)
        client.writer.close()
        await eventually(reviews, lambda found: found == 0)


@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize("step", [step for step in Step if step is not Step.ANSWERED])
async def test_a_client_that_goes_at_any_step_leaves_no_trace(step: Step, ending: str) -> None:
    async with a_poll_world() as world, connected(world) as client:
        heard = asyncio.Event()

        async def go(reached: Step) -> None:
            if reached is step:
                client.writer.close() if ending == "close" else client.reset()
                await heard.wait()

        world.at.append(go)
        client.send(await world.add_pod(), "Prefer: wait=30")
        await is_waiting(world)
        await world.queue(1)
        await is_waiting(world, 0)
        heard.set()

        async def back() -> bool:
            return world.state() is JobState.QUEUED and not await world.is_stamped()

        await eventually(back)
        assert world.forge.runners == {}


async def test_an_answer_that_could_not_be_written_is_given_again() -> None:
    async with a_poll_world() as world:
        token = await world.add_pod()
        async with connected(world) as client:
            client.send(token, "Prefer: wait=30")
            await is_waiting(world)
            await world.queue(1)
            await within(client.reader.read(1))  # it came, and this runner dies
            client.reset()
        async with connected(world) as client:
            client.send(token, "Prefer: wait=30")
            status, _, body = await client.answer()
        assert status == 200
        assert json.loads(body)["job_id"] == "forge/1"


async def test_a_second_request_on_the_same_connection_waits_for_the_first() -> None:
    async with a_poll_world() as world, connected(world) as client:
        token = await world.add_pod()
        client.send(token, "Prefer: wait=1")
        client.send(token, "Prefer: wait=0")
        assert [(await client.answer())[0] for _ in range(2)] == [204, 204]


@pytest.mark.parametrize(
    ("prefer", "status"),
    [
        pytest.param("wait=0", 204, id="no wait"),
        pytest.param("WAIT=0", 204, id="in capitals"),
        pytest.param('respond-async, wait="0"', 204, id="among others, quoted"),
        pytest.param("wait=0.5", 204, id="half a second"),
        pytest.param("return=minimal", 204, id="another preference only"),
        pytest.param("wait=", 400, id="nothing"),
        pytest.param("wait=soon", 400, id="a word"),
        pytest.param("wait=-1", 400, id="less than nothing"),
        pytest.param("wait=1e3", 400, id="not plain"),
        pytest.param("wait=9999999999", 400, id="longer than anybody waits"),
    ],
)
async def test_how_long_to_wait(prefer: str, status: int) -> None:
    async with a_poll_world() as world, connected(world) as client:
        client.send(await world.add_pod(), f"Prefer: {prefer}")
        answered, headers, body = await client.answer()
        assert answered == status
        if status == 400:
            assert headers["content-type"] == "application/problem+json"
            assert json.loads(body)["fix"]


async def test_a_wait_is_bounded_by_ours() -> None:
    settings = replace(SETTINGS, polls=PollSettings(wait_max_s=0.2))
    async with a_poll_world(settings) as world, connected(world) as client:
        client.send(await world.add_pod(), "Prefer: wait=86400")
        assert (await client.answer())[0] == 204


@pytest.mark.parametrize(
    ("token", "status"),
    [("", 401), ("rubbish", 401), ("a.b.c", 401)],
    ids=["none", "no token at all", "nobody's"],
)
async def test_who_is_not_known_is_refused(token: str, status: int) -> None:
    async with a_poll_world() as world, connected(world) as client:
        client.send(token, "Prefer: wait=30")
        answered, headers, body = await client.answer()
        said: dict[str, Any] = json.loads(body)
        assert answered == status
        assert headers["www-authenticate"] == "Bearer"
        assert said["why"]
        assert said["fix"]


async def test_a_drained_runner_is_told_why_it_leaves() -> None:
    async with a_poll_world() as world, connected(world) as client:
        token = await world.add_pod()
        await _label(world, "drain", "true")
        client.send(token, "Prefer: wait=30")
        status, _, body = await client.answer()
        assert status == 410
        assert json.loads(body)["reason"] == "a person asked it to drain"


async def _label(world: PollWorld, key: str, value: str) -> None:
    patch = MergePatch({"metadata": {"labels": {f"remuda.dev/{key}": value}}})
    await world.kube.patch(POD, "a", patch, namespace=SETTINGS.namespace)


async def test_a_stopping_server_asks_to_come_again() -> None:
    async with a_poll_world() as world, connected(world) as client:
        client.send(await world.add_pod(), "Prefer: wait=30")
        await is_waiting(world)
        world.server.desk.close()
        status, headers, _ = await client.answer()
        assert status == 503
        assert int(headers["retry-after"]) >= 1


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with a_poll_world() as world, connected(world) as client:
        client.send(await world.add_pod(), body=b"x" * (BODY_MAX_BYTES + 1))
        assert (await client.answer())[0] == 413


async def test_a_client_that_goes_in_the_middle_of_its_body_is_forgotten() -> None:
    async with a_poll_world() as world, connected(world) as client:
        token = await world.add_pod()
        client.send(token, "Prefer: wait=30", body=b"x", length=100)
        client.writer.close()
        async with connected(world) as other:
            other.send(token, "Prefer: wait=0")
            assert (await other.answer())[0] == 204


async def test_other_methods_are_not_served() -> None:
    async with a_poll_world() as world, connected(world) as client:
        client.writer.write(b"GET /api/v1/dispatch HTTP/1.1\r\nHost: d\r\n\r\n")
        assert (await client.answer())[0] == 405


async def test_a_job_config_is_in_no_log() -> None:
    with structlog.testing.capture_logs() as logs:
        async with a_poll_world() as world, connected(world) as client:
            client.send(await world.add_pod(), "Prefer: wait=30")
            await is_waiting(world)
            await world.queue(1)
            assert (await client.answer())[0] == 200
    assert CANARY not in repr(logs)
    assert CANARY not in repr(world.tables)
