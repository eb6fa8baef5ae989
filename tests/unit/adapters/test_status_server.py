from __future__ import annotations

import socket

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from remuda.adapters.status_server import CannotListen, Listen, Ready, Status, serving_status
from remuda.model.errors import BadInput

ANY_PORT = Listen(port=0)


class Process:
    """A process that is told what to say."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.found: tuple[str, ...] = ()
        self.is_ready = Ready(ok=True, says="leader")

    def status(self) -> Status:
        return Status(self.registry, lambda: self.found, lambda: self.is_ready)


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_health_follows_what_the_loops_do() -> None:
    process = Process()
    async with serving_status(ANY_PORT, process.status()) as url:
        assert await get(f"{url}/healthz") == (200, "ok\n")

        process.found = ("the pool loop has not run for 95 s", "the view loop hangs")
        assert await get(f"{url}/healthz") == (
            503,
            "the pool loop has not run for 95 s\nthe view loop hangs\n",
        )

        process.found = ()
        assert await get(f"{url}/healthz") == (200, "ok\n")


async def test_ready_says_what_it_is() -> None:
    process = Process()
    async with serving_status(ANY_PORT, process.status()) as url:
        assert await get(f"{url}/readyz") == (200, "leader\n")
        process.is_ready = Ready(ok=False, says="leader, listing the fleet")
        assert await get(f"{url}/readyz") == (503, "leader, listing the fleet\n")


async def test_metrics_are_those_of_the_registry_now() -> None:
    process = Process()
    gauge = Gauge("remuda_test", "A number.", ["pool"], registry=process.registry)
    async with serving_status(ANY_PORT, process.status()) as url:
        gauge.labels("mac").set(3)
        code, text = await get(f"{url}/metrics")
    assert code == 200
    assert 'remuda_test{pool="mac"} 3.0' in text


async def test_nothing_else_is_served() -> None:
    async with serving_status(ANY_PORT, Process().status()) as url:
        assert (await get(f"{url}/"))[0] == 404
        async with aiohttp.ClientSession() as session, session.post(f"{url}/metrics") as answer:
            assert answer.status == 405


async def test_a_port_that_is_taken_is_told_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match="--listen") as caught:
            async with serving_status(Listen(port=port), Process().status()):
                pass
    assert f"127.0.0.1:{port}" in caught.value.what


async def test_the_port_is_free_again_afterwards() -> None:
    async with serving_status(ANY_PORT, Process().status()) as url:
        port = int(url.rpartition(":")[2])
    async with serving_status(Listen(port=port), Process().status()) as again:
        assert again == url


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("127.0.0.1:9464", Listen("127.0.0.1", 9464)),
        (":9464", Listen("", 9464)),
        ("[::1]:0", Listen("::1", 0)),
        ("status.local:80", Listen("status.local", 80)),
    ],
)
def test_an_address_is_read(text: str, listen: Listen) -> None:
    assert Listen.parse(text) == listen


@pytest.mark.parametrize("text", ["", "9464", "host:", "host:x", "host:65536", "::1:80", "[]:80"])
def test_an_address_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="host:port"):
        Listen.parse(text)
