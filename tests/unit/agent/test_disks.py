"""How full disks are: alarms that begin and end at different marks, and nothing that hangs on a guest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from remuda.agent.decide.recorded import State
from remuda.agent.machine import disk_space
from remuda.ports.vms import VmsError, golden_name, vm_name
from remuda.sim.loop import run
from tests.unit.agent.a_host import GIB, HUNG_S, A, AHost, broken
from tests.unit.agent.builders import a_record

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = vm_name("uid-1"), vm_name("uid-2")


async def two_guests(host: AHost) -> None:
    for uid in ("uid-1", "uid-2"):
        for state in (State.CLONING, State.CLONED, State.STARTED):
            await host.ledger.write(a_record(state, uid, image=A))
        await host.clone(A, vm_name(uid))
        await host.vms.run(vm_name(uid))


@pytest.mark.parametrize(
    ("free_gib", "low", "reclaiming"),
    [
        pytest.param([90], False, False, id="plenty is free"),
        pytest.param([14], False, True, id="it fills up: images go before anybody has to know"),
        pytest.param([9], True, True, id="it is nearly full"),
        pytest.param([9, 11], True, True, id="a little better is not yet good"),
        pytest.param([9, 12], False, True, id="it is good beyond the second mark"),
        pytest.param([11], False, True, id="where no alarm was, none begins between the marks"),
        pytest.param([14, 19], False, True, id="reclaiming goes on"),
        pytest.param([14, 20], False, False, id="until there is room"),
        pytest.param([9, None], True, True, id="what cannot be measured changes nothing"),
        pytest.param([None], False, False, id="and alarms nobody"),
    ],
)
def test_the_hosts_disk(
    tmp_path: Path,
    free_gib: list[int | None],
    low: bool,  # noqa: FBT001 - a column of the table
    reclaiming: bool,  # noqa: FBT001 - likewise
) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        for free in free_gib:
            host.measured = free is not None
            host.disk.free_bytes = (free or 0) * GIB
            host.disks.measure()
        state = host.disks.state
        assert (state.host_low, state.pressure, state.reclaiming) == (low, low, reclaiming)
        host.records.close()

    run(story)


def test_listeners_hear_of_changes_only_and_the_metric_of_each_measurement(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        told: list[bool] = []
        host.disks.on_change(lambda: told.append(host.disks.state.pressure))
        for free_gib in (90, 50, 9, 8, 11, 30, 90):
            host.disk.free_bytes = free_gib * GIB
            host.disks.measure()
        assert told == [True, False]
        free = host.metrics.registry.get_sample_value("remuda_agent_host_disk_free_ratio")
        assert free == 0.9
        assert host.disks.space is not None
        host.records.close()

    run(story)


def test_a_guest_that_is_nearly_full_is_pressure_until_it_is_better(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running():
            await two_guests(host)
            seen: list[list[str]] = []
            for used in (0.5, 0.9, 0.87, None, 0.85, 0.87):
                host.vms.guests = {ONE: used, TWO: 0.1}
                await host.disks.look_at_guests()
                host.disks.measure()
                seen.append(sorted(host.disks.state.full_guests))
            assert seen == [[], [ONE], [ONE], [ONE], [], []]

    run(story)


def test_a_guest_that_is_gone_is_no_pressure(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running():
            await two_guests(host)
            host.vms.guests = {ONE: 0.99, TWO: 0.99}
            await host.disks.look_at_guests()
            assert host.disks.state.full_guests == {ONE, TWO}
            host.vms.halt(ONE)
            host.vms.faults["exec"] = [broken(VmsError)]
            await host.disks.look_at_guests()
            assert host.disks.state.full_guests == {TWO}  # it did not answer: what held, holds
            host.vms.faults["list"] = [broken(VmsError)]
            await host.disks.look_at_guests()
            assert host.disks.state.full_guests == {TWO}

    run(story)


def test_only_running_guests_of_ours_are_asked(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running():
            await two_guests(host)
            host.vms.halt(TWO)
            await host.vms.clone(golden_name(A), "builder")
            await host.vms.run("builder")
            await host.disks.look_at_guests()
            asked = [call for call in host.vms.calls if call.startswith("exec")]
            assert asked == [f"exec {ONE}"]

    run(story)


def test_a_guest_that_hangs_holds_up_neither_the_host_nor_another_guest(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running() as group:
            await two_guests(host)
            host.vms.hung = {ONE}
            host.vms.guests = {TWO: 0.99}
            measuring = group.create_task(host.disks.run())
            await asyncio.sleep(60)
            host.disk.free_bytes = 1
            await asyncio.sleep(60)
            assert host.disks.state.host_low
            await asyncio.sleep(HUNG_S)
            assert host.disks.state.full_guests == {TWO}
            measuring.cancel()

    run(story)


def test_a_golden_stays_trusted_while_disks_are_looked_at(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running() as group:
            measuring = group.create_task(host.disks.run())
            await host.clone(A, "one")
            await asyncio.sleep(600)
            with host.goldens.held(A) as place:
                assert host.goldens.is_trusted(place)
            measuring.cancel()

    run(story)


def test_a_real_disk_is_measured_also_for_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    space = disk_space([tmp_path, tmp_path / "not" / "there"])
    assert space is not None
    assert 0 < space.free_bytes <= space.total_bytes
    assert disk_space([]) is None
