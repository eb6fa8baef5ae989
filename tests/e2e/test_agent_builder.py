"""
People build images on hosts that have an agent. What they make is theirs, whatever they call it.

A push reads its VM for minutes and protects it by nothing: Tart's own lock is lost as soon as it is taken. So an agent
that tidies up beside it must never touch what it did not make, with and without garbage collection, also when the disk
is full.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from remuda.ports.vms import golden_name
from tests.support.eventually import eventually
from tests.support.processes import free_port
from tests.support.tart.faults import Fault

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator

    from tests.support.pasture import Paddock, Pasture

pytestmark = pytest.mark.asyncio(loop_scope="session")

THEIRS = (
    *("builder", "remuda-build-7", "remuda-golden-mine"),
    "remuda-0b1f6a1e-53f0-4a5c-9c5e-3f2f6f1f8f10",
)
"""Names that people give to VMs; the last two are like ours in all."""
ROUNDS = 6
LISTS = 'remuda_agent_op_seconds_count{op="list"}'


@pytest.mark.parametrize("options", [(), ("--disable-vm-gc",)], ids=["collecting", "not"])
async def test_a_push_outlasts_garbage_collection(
    pasture: Pasture, options: tuple[str, ...]
) -> None:
    # The disk is never as free as it should be: whatever may go goes at once.
    greedy = ("--gc-interval=1", "--disk-reclaim=1", "--keep-images=0.1", "--orphan-grace=0")
    async with pasture.a_mac(*greedy, *options) as mac, a_slow_line(pasture) as line:
        collects = not options
        image, other = await pasture.image("runner"), await pasture.image("other")
        pool = await mac.pool("jobs", image)
        pushes = [await begin_push(mac, line, name) for name in THEIRS]
        await eventually(line.is_held, within_s=60)
        await mac.warm(pool)
        await rounds(mac, collects=collects)

        # No room for an image that is wanted: the most that is ever removed.
        await mac.drop(pool)
        mac.order(Fault(verb="pull", kind="no_space"))
        pool = await mac.pool("more", other)
        pod = await mac.appeared(pool)
        if not collects:
            await mac.until_event(pod, "NoSpace")
        await mac.warm(pool)
        assert (golden_name(image) in mac.mac.vms()) is not collects
        await rounds(mac, collects=collects)

        assert [push.poll() for push in pushes] == [None] * len(THEIRS), "all of them still push"
        line.let_go.set()
        for name, push in zip(THEIRS, pushes, strict=True):
            out, err = await asyncio.to_thread(push.communicate, timeout=60)
            assert push.returncode == 0, (name, out, err)
        assert set(THEIRS) <= set(mac.mac.vms())
        for name in THEIRS:
            assert mac.tart.call("delete", name).returncode == 0
        await mac.tidy()


async def begin_push(mac: Paddock, line: SlowLine, name: str) -> subprocess.Popen[str]:
    vm = await asyncio.to_thread(mac.tart.make, name)
    await asyncio.to_thread(vm.disk.write_bytes, os.urandom(1_000_000))
    return mac.tart.start("push", name, f"{line.host}/builds/{name}:1", "--insecure")


async def rounds(mac: Paddock, *, collects: bool) -> None:
    """Wait for several rounds of garbage collection; where there are none, for as long as they would take."""
    if not collects:
        for _ in range(ROUNDS):
            await mac.lease_renewed()  # one a second, as garbage would be collected
        return
    before = await mac.metric(LISTS)
    await mac.until_metric(LISTS, before + ROUNDS)


# --- a line that holds what is sent over it --------------------------------------------------------------------------


@dataclass(slots=True)
class SlowLine:
    """Stands before a registry. Small things pass; what is large stays in the line until it is let go."""

    host: str
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    held: int = 0

    async def is_held(self) -> bool:
        return self.held >= len(THEIRS)


PASSES_BYTES = 200_000


@asynccontextmanager
async def a_slow_line(pasture: Pasture) -> AsyncIterator[SlowLine]:
    there, _, port = pasture.registry.host.partition(":")
    listens = free_port()
    line = SlowLine(f"127.0.0.1:{listens}")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asks = await asyncio.open_connection(there, int(port))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_carry(answers, writer, None))
                group.create_task(_carry(reader, asks, line))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # either side went
        finally:
            writer.close()
            asks.close()

    server = await asyncio.start_server(serve, "127.0.0.1", listens)
    try:
        yield line
    finally:
        line.let_go.set()
        server.close()


async def _carry(
    come: asyncio.StreamReader, go: asyncio.StreamWriter, held_by: SlowLine | None
) -> None:
    carried = 0
    while data := await come.read(65_536):
        go.write(data)
        await go.drain()
        carried += len(data)
        if held_by is not None and carried >= PASSES_BYTES and not held_by.let_go.is_set():
            held_by.held += 1
            await held_by.let_go.wait()
    go.write_eof()
