"""What every driver of VMs must do. A driver joins by one more entry in tests/support/vm_hosts.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.vm_hosts import Host

A, B, C = (vm_name(f"uid-{letter}") for letter in "abc")
SLOW_S = 180.0


def quietly(_: PullProgress) -> None:
    """Take no notice of progress."""


async def golden(host: Host) -> str:
    name = golden_name(host.image)
    await host.vms.pull(host.image, quietly)
    await host.vms.make_golden(host.image, name)
    return name


async def cloned(host: Host, *names: str) -> None:
    name = golden_name(host.image)
    if await host.vms.observe(name) is None:
        await golden(host)
    for clone in names:
        await host.vms.clone(name, clone)
        host.vms.mailbox(clone).mkdir(parents=True)


async def ended(host: Host, name: str) -> Ending | None:
    """Wait until a VM is off, and return how it ended."""

    async def is_off() -> SeenVm | None:
        return await host.vms.observe(name)

    seen = await eventually(
        is_off, lambda seen: seen is not None and seen.power is Power.STOPPED, within_s=SLOW_S
    )
    assert seen is not None
    return None if seen.end is None else seen.end.how


async def test_an_empty_host_holds_nothing(host: Host) -> None:
    found = await host.vms.inventory()
    assert (found.vms, found.images) == ((), ())
    assert await host.vms.observe(A) is None


async def test_a_pull_shows_its_progress_and_is_done_once(host: Host) -> None:
    if not host.vms.abilities.pulls:
        return  # its images do not come from a registry
    seen: list[PullProgress] = []
    await host.vms.pull(host.image, seen.append)
    assert seen
    assert seen[-1].done_bytes == seen[-1].total_bytes
    await host.vms.pull(host.image, quietly)
    assert [image.ref for image in (await host.vms.inventory()).images] == [host.image]
    size = await host.vms.image_bytes(host.image)
    assert size is not None
    assert size > 0


async def test_an_image_that_does_not_exist_is_refused(host: Host) -> None:
    repository = host.image.partition("@")[0].rpartition(":")[0] or host.image
    with pytest.raises(Refused):
        await host.vms.pull(f"{repository}-none:1", quietly)


async def test_an_image_that_does_not_fit_leaves_nothing(host: Host) -> None:
    if not host.vms.abilities.pulls:
        return  # its images do not come from a registry
    host.fill_disk()
    with pytest.raises(NoSpace):
        await host.vms.pull(host.image, quietly)
    assert (await host.vms.inventory()).images == ()


async def test_a_golden_is_made_from_what_was_pulled_and_never_replaced(host: Host) -> None:
    if host.vms.abilities.pulls:
        with pytest.raises(NotThere):
            await host.vms.make_golden(host.image, golden_name(host.image))
    await golden(host)
    with pytest.raises(NameTaken):
        await host.vms.make_golden(host.image, golden_name(host.image))


async def test_a_clone_is_stopped_and_never_replaces_one(host: Host) -> None:
    await cloned(host, A)
    assert await host.vms.observe(A) == SeenVm(name=A, power=Power.STOPPED)
    with pytest.raises(NameTaken):
        await host.vms.clone(golden_name(host.image), A)
    with pytest.raises(NotThere):
        await host.vms.clone(golden_name("none"), B)


async def test_everything_is_listed_as_it_is(host: Host) -> None:
    await cloned(host, A, B)
    await host.vms.run(B)
    powers = {vm.name: vm.power for vm in (await host.vms.inventory()).vms}
    assert powers == {
        golden_name(host.image): Power.STOPPED,
        A: Power.STOPPED,
        B: Power.RUNNING,
    }


async def test_a_vm_outlives_its_agent(host: Host) -> None:
    await cloned(host, A)
    await host.vms.shape(A, VmShape(cpus=1, memory_mib=1024))
    await host.vms.run(A)
    again = host.restarted()
    seen = await again.observe(A)
    assert seen is not None
    assert seen.power is Power.RUNNING
    assert again.log_file(A).stat().st_mode & 0o077 == 0
    await again.stop(A, grace_s=0)
    assert await ended(host, A) is Ending.STOPPED


async def test_a_guest_that_halts_is_told_from_one_that_was_stopped(host: Host) -> None:
    await cloned(host, A, B)
    for name in (A, B):
        await host.vms.run(name)
    host.halt(A)
    await host.vms.stop(B, grace_s=0)
    assert [await ended(host, name) for name in (A, B)] == [Ending.HALTED, Ending.STOPPED]


async def test_the_end_of_a_run_is_known_to_an_agent_that_did_not_see_it(host: Host) -> None:
    await cloned(host, A)
    await host.vms.run(A)
    host.halt(A)
    assert await ended(host, A) is Ending.HALTED
    seen = await host.restarted().observe(A)
    assert seen is not None
    assert seen.end is not None
    assert seen.end.how is Ending.HALTED
    assert seen.end.at is not None


async def test_a_vm_too_many_waits_for_a_slot(host: Host) -> None:
    if host.vms.abilities.vms_max != 2:
        return  # it takes more, or fewer
    await cloned(host, A, B, C)
    for name in (A, B):
        await host.vms.run(name)
    with pytest.raises(NoSlot):
        await host.vms.run(C)
    await host.vms.stop(A, grace_s=0)
    await host.vms.run(C)


async def test_what_runs_is_neither_deleted_nor_run_again(host: Host) -> None:
    await cloned(host, A)
    await host.vms.run(A)
    with pytest.raises(StillRunning):
        await host.vms.run(A)
    with pytest.raises(StillRunning):
        await host.vms.delete(A)
    await host.vms.stop(A, grace_s=0)
    await host.vms.stop(A, grace_s=0)
    await host.vms.delete(A)
    assert await host.vms.observe(A) is None
    assert not host.vms.log_file(A).exists()


async def test_what_is_not_there_is_said_to_be_not_there(host: Host) -> None:
    for call in (
        host.vms.delete(A),
        host.vms.stop(A, grace_s=0),
        host.vms.run(A),
        host.vms.shape(A, VmShape()),
        host.vms.drop_image(host.image),
    ):
        with pytest.raises(NotThere):
            await call


async def test_a_name_that_begins_like_another_is_another(host: Host) -> None:
    await cloned(host, A, f"{A}-2")
    await host.vms.run(f"{A}-2")
    await host.vms.delete(A)
    seen = await host.vms.observe(f"{A}-2")
    assert seen is not None
    assert seen.power is Power.RUNNING


async def test_golden_and_image_go_by_themselves(host: Host) -> None:
    name = await golden(host)
    await host.vms.delete(name)
    if host.vms.abilities.pulls:
        await host.vms.drop_image(host.image)
    found = await host.vms.inventory()
    assert (found.vms, found.images) == ((), ())


async def test_each_vm_has_places_of_its_own(host: Host) -> None:
    places = [place(n) for n in (A, B) for place in (host.vms.mailbox, host.vms.log_file)]
    assert len(set(places)) == 4
    log, mailbox = host.vms.log_file(A), host.vms.mailbox(A)
    assert mailbox not in log.parents, "the guest must not see its log's file"
