"""Slots: taken before a start, given back when a stop was seen, whoever else runs VMs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from remuda.agent.decide.capacity import HostOffer
from remuda.agent.decide.recorded import State
from remuda.agent.ledger import Ledger, on_the_spot
from remuda.agent.metrics import AgentMetrics
from remuda.agent.record import RecordFolder
from remuda.agent.slots import HIDDEN_S, UNFIT_S, SlotBook
from remuda.ports.vms import HostUnfit, VmsError, vm_name
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from tests.support.memory_vms import Disk, _Vm
from tests.unit.agent.builders import UID, a_record
from tests.unit.agent.mortal import CountingVms, Life, MortalVms

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Any

OFFER = HostOffer(cpus=4, memory_mib=4096, vms=2, pods=5)


class Booth:
    """A slot book over VMs in memory."""

    def __init__(self, folder: Path) -> None:
        self.clock = SimClock(asyncio.get_running_loop())
        self.disk = Disk(registry={}, free_bytes=0)
        self.vms = CountingVms(self.disk, folder, self.clock)
        self.records = RecordFolder(folder / "records", sync=lambda _: None)
        self.ledger = Ledger(self.records, on_the_spot)
        self.book = self.opened()

    def opened(self) -> SlotBook:
        return SlotBook(
            MortalVms(self.vms, Life()),
            self.ledger,
            OFFER,
            clock=self.clock,
            ids=SeededIds(1, "slots"),
            metrics=AgentMetrics(CollectorRegistry()),
        )


def played(folder: Path, play: Callable[[Booth], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        booth = Booth(folder)
        try:
            await play(booth)
        finally:
            booth.records.close()

    run(main)


def test_of_many_who_ask_only_as_many_get_a_slot_as_there_are(tmp_path: Path) -> None:
    async def play(booth: Booth) -> None:
        got = await asyncio.gather(*(booth.book.take(f"vm-{n}") for n in range(5)))
        assert sum(got) == 2
        assert booth.book.now().free == 0
        taken = [f"vm-{n}" for n, yes in enumerate(got) if yes]
        assert await booth.book.take(taken[0]), "who has one keeps it"
        booth.book.release(taken[0])
        assert await booth.book.take("vm-9")

    played(tmp_path, play)


def test_what_was_started_before_a_restart_counts_until_it_is_seen_stopped(tmp_path: Path) -> None:
    async def play(booth: Booth) -> None:
        for state in (State.CLONING, State.CLONED, State.STARTED):
            await booth.ledger.write(a_record(state))
        book = booth.opened()
        assert book.now().ours == 1
        book.release(vm_name(UID))
        assert book.now().ours == 0

    played(tmp_path, play)


def test_what_others_run_takes_slots_and_what_they_stopped_does_not(tmp_path: Path) -> None:
    async def play(booth: Booth) -> None:
        booth.disk.vms["theirs"] = _Vm(running=True)
        booth.disk.vms["theirs-too"] = _Vm()
        assert await booth.book.take("vm-1")
        assert not await booth.book.take("vm-2")
        assert booth.book.now().offered == 1
        booth.disk.vms["theirs"].running = False
        assert await booth.book.take("vm-2")

    played(tmp_path, play)


def test_without_any_list_nobody_starts_and_with_an_old_one_a_failure_stops_nobody(
    tmp_path: Path,
) -> None:
    async def play(booth: Booth) -> None:
        failure = VmsError("No list", why="it is broken", fix="Mend it")
        booth.vms.fails["list"] = failure
        try:
            await booth.book.take("vm-1")
        except VmsError:
            pass
        else:
            raise AssertionError("it started blindly")
        assert await booth.book.take("vm-1")
        booth.vms.hangs.add(("list", ""))
        before = booth.clock.monotonic()
        assert await booth.book.take("vm-2")
        assert booth.clock.monotonic() - before < 30, "a hung list held up a start"

    played(tmp_path, play)


def test_a_host_that_refused_a_start_offers_less_for_a_while(tmp_path: Path) -> None:
    async def play(booth: Booth) -> None:
        assert await booth.book.take("vm-1")
        booth.book.full()
        assert (booth.book.now().offered, booth.book.now().free) == (1, 0)
        await booth.clock.sleep(HIDDEN_S + 1)
        assert booth.book.now().free == 1

    played(tmp_path, play)


def test_an_unfit_host_is_given_another_chance(tmp_path: Path) -> None:
    async def play(booth: Booth) -> None:
        booth.vms.fails["list"] = HostUnfit("No VM", why="there is no such program", fix="Add it")
        assert not await booth.book.refresh()
        assert "no such program" in booth.book.unfit
        await booth.clock.sleep(UNFIT_S + 1)
        assert not booth.book.unfit

    played(tmp_path, play)


def test_those_who_wait_for_a_slot_do_not_wake_one_another(tmp_path: Path) -> None:
    async def play(booth: Booth) -> None:
        booth.disk.vms["theirs"] = _Vm(running=True)
        booth.disk.vms["theirs-too"] = _Vm(running=True)
        assert not await booth.book.take("vm-1")
        booth.book.freed.clear()
        assert not await booth.book.take("vm-2")
        assert not booth.book.freed.is_set()
        booth.disk.vms["theirs"].running = False
        await booth.book.refresh()
        assert booth.book.freed.is_set()

    played(tmp_path, play)
