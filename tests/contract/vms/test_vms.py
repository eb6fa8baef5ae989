"""What every driver of VMs must do. A driver joins by one more entry in ``hosts``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from remuda.adapters.system import SystemClock
from remuda.ports.vms import (
    Ending,
    NameTaken,
    NoSlot,
    NoSpace,
    NotThere,
    Power,
    PullProgress,
    Refused,
    SeenVm,
    StillRunning,
    VmShape,
    golden_name,
    vm_name,
)
from tests.support.memory_vms import Disk, MemoryVms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.ports.vms import Vms

IMAGE, HUGE = "registry.example/linux:1", "registry.example/huge:1"
GOLDEN = golden_name(IMAGE)
A, B, C = (vm_name(f"uid-{letter}") for letter in "abc")


class Host(Protocol):
    """A host to try a driver on."""

    vms: Vms

    def restarted(self) -> Vms:
        """Return the driver of an agent that was started anew on the same host."""
        ...

    def halt(self, name: str) -> None:
        """Have the guest power itself off."""
        ...


@dataclass
class MemoryHost:
    disk: Disk
    folder: Path

    def __post_init__(self) -> None:
        self.vms: Vms = self.restarted()

    def restarted(self) -> MemoryVms:
        return MemoryVms(self.disk, self.folder, SystemClock())

    def halt(self, name: str) -> None:
        self.restarted().halt(name)


def a_memory_host(folder: Path) -> Host:
    return MemoryHost(Disk(registry={IMAGE: 100, HUGE: 10**9}, free_bytes=1000), folder)


@pytest.fixture(params=[pytest.param(a_memory_host, id="memory")])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    make: Callable[[Path], Host] = request.param
    return make(tmp_path)


def quietly(_: PullProgress) -> None:
    """Take no notice of progress."""


async def golden(vms: Vms) -> None:
    await vms.pull(IMAGE, quietly)
    await vms.make_golden(IMAGE, GOLDEN)


async def cloned(vms: Vms, *names: str) -> None:
    if await vms.observe(GOLDEN) is None:
        await golden(vms)
    for name in names:
        await vms.clone(GOLDEN, name)


async def test_an_empty_host_holds_nothing(host: Host) -> None:
    found = await host.vms.inventory()
    assert (found.vms, found.images) == ((), ())
    assert await host.vms.observe(A) is None


async def test_a_pull_shows_its_progress_and_is_done_once(host: Host) -> None:
    seen: list[PullProgress] = []
    await host.vms.pull(IMAGE, seen.append)
    assert seen
    assert seen[-1].done_bytes == seen[-1].total_bytes
    await host.vms.pull(IMAGE, quietly)
    assert [image.ref for image in (await host.vms.inventory()).images] == [IMAGE]


async def test_an_image_that_does_not_exist_is_refused(host: Host) -> None:
    with pytest.raises(Refused):
        await host.vms.pull("registry.example/none:1", quietly)


async def test_an_image_that_does_not_fit_leaves_nothing(host: Host) -> None:
    with pytest.raises(NoSpace):
        await host.vms.pull(HUGE, quietly)
    assert (await host.vms.inventory()).images == ()


async def test_a_golden_is_made_from_what_was_pulled_and_never_replaced(host: Host) -> None:
    with pytest.raises(NotThere):
        await host.vms.make_golden(IMAGE, GOLDEN)
    await golden(host.vms)
    with pytest.raises(NameTaken):
        await host.vms.make_golden(IMAGE, GOLDEN)


async def test_a_clone_is_stopped_and_never_replaces_one(host: Host) -> None:
    await cloned(host.vms, A)
    assert await host.vms.observe(A) == SeenVm(name=A, power=Power.STOPPED)
    with pytest.raises(NameTaken):
        await host.vms.clone(GOLDEN, A)
    with pytest.raises(NotThere):
        await host.vms.clone(golden_name("none"), B)


async def test_a_vm_outlives_its_agent(host: Host) -> None:
    await cloned(host.vms, A)
    await host.vms.shape(A, VmShape(cpus=1, memory_mib=128))
    await host.vms.run(A)
    again = host.restarted()
    seen = await again.observe(A)
    assert seen is not None
    assert seen.power is Power.RUNNING
    assert again.log_file(A).stat().st_mode & 0o077 == 0
    await again.stop(A, grace_s=0)


async def test_a_guest_that_halts_is_told_from_one_that_was_stopped(host: Host) -> None:
    await cloned(host.vms, A, B)
    for name in (A, B):
        await host.vms.run(name)
    host.halt(A)
    await host.vms.stop(B, grace_s=0)
    ends = [seen.end and seen.end.how for n in (A, B) if (seen := await host.vms.observe(n))]
    assert ends == [Ending.HALTED, Ending.STOPPED]


async def test_a_vm_too_many_waits_for_a_slot(host: Host) -> None:
    if host.vms.abilities.vms_max != 2:
        return
    await cloned(host.vms, A, B, C)
    for name in (A, B):
        await host.vms.run(name)
    with pytest.raises(NoSlot):
        await host.vms.run(C)
    await host.vms.stop(A, grace_s=0)
    await host.vms.run(C)


async def test_what_runs_is_neither_deleted_nor_run_again(host: Host) -> None:
    await cloned(host.vms, A)
    await host.vms.run(A)
    with pytest.raises(StillRunning):
        await host.vms.run(A)
    with pytest.raises(StillRunning):
        await host.vms.delete(A)
    await host.vms.stop(A, grace_s=0)
    await host.vms.stop(A, grace_s=0)
    await host.vms.delete(A)
    assert await host.vms.observe(A) is None


async def test_what_is_not_there_is_said_to_be_not_there(host: Host) -> None:
    for call in (
        host.vms.delete(A),
        host.vms.stop(A, grace_s=0),
        host.vms.run(A),
        host.vms.shape(A, VmShape()),
        host.vms.drop_image(IMAGE),
    ):
        with pytest.raises(NotThere):
            await call


async def test_a_name_that_begins_like_another_is_another(host: Host) -> None:
    await cloned(host.vms, A, f"{A}-2")
    await host.vms.run(f"{A}-2")
    await host.vms.delete(A)
    seen = await host.vms.observe(f"{A}-2")
    assert seen is not None
    assert seen.power is Power.RUNNING


async def test_golden_and_image_go_by_themselves(host: Host) -> None:
    await golden(host.vms)
    await host.vms.delete(GOLDEN)
    await host.vms.drop_image(IMAGE)
    found = await host.vms.inventory()
    assert (found.vms, found.images) == ((), ())


async def test_each_vm_has_places_of_its_own(host: Host) -> None:
    places = [place(n) for n in (A, B) for place in (host.vms.mailbox, host.vms.log_file)]
    assert len(set(places)) == 4
    log, mailbox = host.vms.log_file(A), host.vms.mailbox(A)
    assert mailbox not in log.parents, "the guest must not see its log's file"
