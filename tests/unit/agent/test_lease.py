"""The Node's Lease: renewed whatever else happens, and not for an agent that is stuck."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock, SystemIds
from remuda.agent.lease import EXIT_STUCK, NAMESPACE, LeaseKeeper, LeaseSettings, LeaseThread
from remuda.control.cache import Key
from remuda.kube.core import Lease
from remuda.ports.kube import Unavailable
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.support.eventually import eventually
from tests.unit.control.fake_kube import FakeKube, broken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from remuda.ports.kube import Kube

WITHIN_S = 60.0
SETTINGS = LeaseSettings(node="mac-1", heartbeat_s=10.0)
KEY = Key(NAMESPACE, "mac-1")


class Virtual:
    """A keeper on virtual time."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.uid = "uid-1"
        self.clock = SimClock(asyncio.get_running_loop())

    def lease(self) -> Lease | None:
        found = self.kube.objects.get(KEY)
        assert found is None or isinstance(found, Lease)
        return found

    def owners(self) -> list[str]:
        lease = self.lease()
        return [owner.uid for owner in lease.metadata.owner_references] if lease else []

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[asyncio.Task[None]]:
        keeper = LeaseKeeper(
            self.kube, SETTINGS, lambda: self.uid, clock=self.clock, ids=SeededIds(1, "lease")
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(keeper.keep())
            yield task
            task.cancel()


def test_a_lease_is_made_and_renewed() -> None:
    async def main() -> None:
        host = Virtual()
        async with host.keeping():
            await host.clock.sleep(1)
            first = host.lease()
            assert first is not None
            assert first.spec.holder_identity == "mac-1"
            assert first.spec.lease_duration_seconds == 40
            await host.clock.sleep(60)
            later = host.lease()
            assert later is not None
            assert str(later.spec.renew_time) > str(first.spec.renew_time)
            assert host.owners() == ["uid-1"]
            assert 6 <= host.kube.calls.count("patch") <= 8

    run(main)


def test_a_lease_that_was_deleted_is_made_again() -> None:
    async def main() -> None:
        host = Virtual()
        async with host.keeping():
            await host.clock.sleep(1)
            del host.kube.objects[KEY]
            await host.clock.sleep(12)
            assert host.lease() is not None

    run(main)


def test_a_lease_follows_its_node_when_that_was_made_anew() -> None:
    async def main() -> None:
        host = Virtual()
        host.uid = ""
        async with host.keeping():
            await host.clock.sleep(1)
            assert host.owners() == []
            host.uid = "uid-2"
            await host.clock.sleep(12)
            assert host.owners() == ["uid-2"]

    run(main)


def test_a_failed_renewal_is_tried_again_soon() -> None:
    async def main() -> None:
        host = Virtual()
        async with host.keeping():
            await host.clock.sleep(1)
            before = host.lease()
            assert before is not None
            host.kube.faults["patch"] = [broken(Unavailable), broken(Unavailable)]
            await host.clock.sleep(15)
            after = host.lease()
            assert after is not None
            assert str(after.spec.renew_time) > str(before.spec.renew_time)

    run(main)


def test_a_connection_that_keeps_failing_is_given_up() -> None:
    async def main() -> None:
        host = Virtual()
        host.kube.faults["patch"] = [broken(Unavailable)] * 3
        async with host.keeping() as task, asyncio.timeout(100):
            await task

    run(main)


# --- The thread, on real time -----------------------------------------------------------------------------------------


class Host:
    """An agent's Lease thread, with an API server that counts the connections to it."""

    def __init__(self, looks_max: int = 1_000_000) -> None:
        self.kube = FakeKube()
        self.connections = 0
        self.open_now = 0
        self.deaths: list[str] = []
        self.died = threading.Event()
        self.lease = LeaseThread(
            LeaseSettings(node="mac-1", heartbeat_s=0.02, looks_min=looks_max, stuck_s=0.0),
            self._connect,
            lambda: "uid-1",
            clock=SystemClock(),
            ids=SystemIds(),
            die=self._die,
        )

    def _die(self, why: str) -> None:
        self.deaths.append(why)
        self.died.set()

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Kube]:
        self.connections += 1
        self.open_now += 1
        try:
            yield self.kube
        finally:
            self.open_now -= 1

    def renewed(self) -> str:
        found = self.kube.objects.get(KEY)
        return str(found.spec.renew_time) if found is not None else ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.lease.run())
            yield task
            task.cancel()

    async def until(self, holds: Callable[[], bool]) -> None:
        async def probe() -> bool:
            return holds()

        await eventually(probe, within_s=WITHIN_S)


async def test_a_blocked_main_loop_delays_no_renewal() -> None:
    host = Host()
    async with host.running():
        await host.until(lambda: bool(host.renewed()))
        before = host.renewed()
        done = threading.Event()

        def wait_for_renewal() -> None:
            while host.renewed() == before and not done.wait(0.01):
                pass
            done.set()

        threading.Thread(target=wait_for_renewal, daemon=True).start()
        done.wait(WITHIN_S)  # nothing else runs on this loop meanwhile
        assert host.renewed() != before


async def test_an_end_of_the_agent_ends_the_thread_and_its_connection() -> None:
    host = Host()
    async with host.running():
        await host.until(lambda: bool(host.renewed()))
    assert host.open_now == 0
    assert "node lease" not in {thread.name for thread in threading.enumerate()}


async def test_after_failures_in_a_row_there_is_a_new_connection() -> None:
    host = Host()
    async with host.running():
        await host.until(lambda: bool(host.renewed()))
        host.kube.faults["patch"] = [broken(Unavailable)] * 3
        await host.until(lambda: host.connections > 1)
        before = host.renewed()
        await host.until(lambda: host.renewed() > before)


async def test_an_agent_whose_main_loop_is_stuck_dies_and_its_lease_with_it() -> None:
    host = Host(looks_max=3)
    thread = threading.Thread(target=host.lease._run_thread)  # noqa: SLF001 - a main loop that never turns
    thread.start()
    await asyncio.to_thread(thread.join, WITHIN_S)
    assert host.deaths == ["its main loop has not turned for 3 heartbeats"]
    assert not thread.is_alive()


async def test_a_thread_that_ends_by_itself_ends_the_agent() -> None:
    host = Host(looks_max=1)

    async def live() -> None:
        async with host.running():
            await host.until(lambda: bool(host.renewed()))
            host.died.wait(WITHIN_S)  # this loop does not turn meanwhile
            await asyncio.sleep(WITHIN_S)

    with pytest.raises(BaseExceptionGroup) as raised:
        await live()
    assert "ended by itself" in str(raised.value.exceptions[0])


def test_an_agent_is_stuck_after_minutes_however_often_it_beats() -> None:
    assert LeaseSettings(node="mac-1", heartbeat_s=10.0).looks_max == 12
    assert LeaseSettings(node="mac-1", heartbeat_s=60.0).looks_max == 12
    assert LeaseSettings(node="mac-1", heartbeat_s=0.5).looks_max == 240


def test_a_stuck_process_ends_with_the_stacks_of_its_threads() -> None:
    code = "from remuda.agent.lease import end_process; end_process('it is a test')"
    ended = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=WITHIN_S
    )
    assert ended.returncode == EXIT_STUCK
    assert "most recent call first" in ended.stderr
