"""What garbage collection really does to a host: only what is ours, only what nobody needs, whatever goes wrong."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.agent.decide.garbage import GarbagePolicy
from remuda.agent.decide.recorded import ImageState, State
from remuda.agent.mailbox import HostMailbox
from remuda.ports.vms import VmsError, golden_name, vm_name
from remuda.sim.clock import EPOCH
from remuda.sim.loop import run
from tests.unit.agent.a_host import GIB, PULL_S, A, AHost, B, C, D, a_disk, broken
from tests.unit.agent.builders import a_record

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from remuda.agent.decide.recorded import VmRecord

POD, OTHER = "uid-1", "uid-2"
VM = vm_name(POD)
LATER_S = 3600.0


async def a_vm(host: AHost, state: State, uid: str = POD, *, runs: bool = False) -> VmRecord:
    """Put a VM with its record and mailbox on the host, made from image A."""
    for before in _way_to(state):
        await host.ledger.write(a_record(before, uid, image=A, accepted_at=EPOCH))
    await host.clone(A, vm_name(uid))
    HostMailbox(host.vms.mailbox(vm_name(uid))).make()
    if runs:
        await host.vms.run(vm_name(uid))
    return a_record(state, uid, image=A, accepted_at=EPOCH)


def _way_to(state: State) -> list[State]:
    ways = [State.CLONING, State.CLONED, State.STARTED, State.DELIVERING, State.DELIVERED]
    if state is State.REFUSED:
        return [state]
    return ways[: ways.index(state) + 1] if state in ways else [*ways, state]


def gone(host: AHost, uid: str = POD, *, for_s: float = LATER_S) -> None:
    """Have it be proven that a Pod is gone."""
    host.pods.gone[uid] = host.clock.now() - timedelta(seconds=for_s)


def on(
    tmp_path: Path,
    story: Callable[[AHost], Coroutine[object, object, None]],
    *,
    free_gib: float = 90,
    policy: GarbagePolicy | None = None,
) -> None:
    """Tell a story on a host, on virtual time."""

    async def told() -> None:
        host = AHost(tmp_path, a_disk(free_gib), policy or GarbagePolicy())
        async with host.running():
            await story(host)

    run(told)


# --- orphans ----------------------------------------------------------------------------------------------------------


def test_a_stopped_orphan_goes_with_mailbox_and_record(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await a_vm(host, State.EXITED)
        gone(host)
        await host.garbage.collect_once()
        assert host.names == [golden_name(A)]
        assert not host.vms.mailbox(VM).exists()
        assert host.ledger.vms() == ()
        assert host.keeping.gone == [POD]
        assert (
            host.metrics.registry.get_sample_value(
                "remuda_agent_garbage_removed_total", {"kind": "vm"}
            )
            == 1
        )

    on(tmp_path, story)


def test_a_running_orphan_is_stopped_and_then_deleted(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await a_vm(host, State.STARTED, runs=True)
        gone(host)
        await host.garbage.collect_once()
        assert host.vms.calls[-3:] == [f"stop {VM}", f"delete {VM}", f"end delete {VM}"]
        assert host.ledger.vms() == ()

    on(tmp_path, story)


@pytest.mark.parametrize(
    ("state", "runs", "gone_for_s"),
    [
        pytest.param(State.STARTED, True, None, id="its Pod is alive"),
        pytest.param(State.EXITED, False, None, id="its Pod is alive, and it ended"),
        pytest.param(State.EXITED, False, 59, id="its Pod has only just gone"),
        pytest.param(State.STARTED, True, 599, id="it runs, and its Pod went a moment ago"),
        pytest.param(State.DELIVERED, True, LATER_S, id="it runs a job"),
        pytest.param(State.REFUSED, False, LATER_S, id="it was refused: it is somebody else's"),
    ],
)
def test_a_vm_stays(tmp_path: Path, state: State, runs: bool, gone_for_s: float | None) -> None:  # noqa: FBT001 - a column of the table
    async def story(host: AHost) -> None:
        record = await a_vm(host, state, runs=runs)
        if gone_for_s is not None:
            gone(host, for_s=gone_for_s)
        await host.garbage.collect_once()
        await host.garbage.make_room(lambda: False)
        assert VM in host.names
        assert host.ledger.get(POD) == record
        assert host.vms.count("stop") == 0

    on(tmp_path, story)


@pytest.mark.parametrize(
    "name", ["builder", VM, golden_name(B), "remuda-", "remuda-golden-0123456789abcdef"]
)
@pytest.mark.parametrize("runs", [False, True], ids=["stopped", "running"])
@pytest.mark.parametrize("enabled", [True, False], ids=["collecting", "builder"])
def test_a_vm_of_somebody_else_stays_whatever_its_name(
    tmp_path: Path,
    name: str,
    runs: bool,  # noqa: FBT001 - a column of the table
    enabled: bool,  # noqa: FBT001 - likewise
) -> None:
    async def story(host: AHost) -> None:
        await host.shelf.stage(A)
        await host.vms.clone(golden_name(A), name)
        if runs:
            await host.vms.run(name)
        gone(host)
        host.disk.images[B] = 1  # they pulled an image, too
        for _ in range(5):
            await asyncio.sleep(86_400)
            await host.garbage.collect_once()
            await host.garbage.make_room(lambda: False)
        assert name in host.names
        assert host.disk.vms[name].running is runs
        assert B in host.disk.images

    on(tmp_path, story, policy=GarbagePolicy(enabled=enabled))


def test_a_vm_that_somebody_works_on_is_left_alone(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await a_vm(host, State.EXITED)
        await a_vm(host, State.EXITED, OTHER)
        gone(host)
        gone(host, OTHER)
        async with host.keeping.exclusively(POD):
            await host.garbage.collect_once()
            assert host.names == sorted([golden_name(A), VM])
        await host.garbage.collect_once()
        assert host.names == [golden_name(A)]

    on(tmp_path, story)


def test_what_changes_while_we_wait_for_it_is_decided_anew(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await a_vm(host, State.EXITED)
        gone(host)

        async def comes_back() -> None:
            async with host.keeping.exclusively(POD):
                await asyncio.sleep(5)
                del host.pods.gone[POD]

        async with asyncio.TaskGroup() as group:
            group.create_task(comes_back())
            await asyncio.sleep(1)
            group.create_task(host.garbage.collect_once())
        assert VM in host.names

    on(tmp_path, story)


@pytest.mark.parametrize("call", ["stop", "delete", "end delete"])
def test_one_removal_that_fails_or_hangs_stops_no_other(tmp_path: Path, call: str) -> None:
    async def story(host: AHost) -> None:
        await a_vm(host, State.STARTED, runs=True)
        await a_vm(host, State.STARTED, OTHER, runs=True)
        gone(host)
        gone(host, OTHER)
        host.vms.faults[call] = [broken(VmsError)]
        await host.garbage.collect_once()
        assert len(host.ledger.vms()) == 1
        await host.garbage.collect_once()
        assert host.ledger.vms() == ()
        assert host.names == [golden_name(A)]

    on(tmp_path, story)


def test_a_hung_orphan_holds_up_no_other(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await a_vm(host, State.STARTED, runs=True)
        await a_vm(host, State.STARTED, OTHER, runs=True)
        gone(host)
        gone(host, OTHER)
        host.vms.hung = {VM}
        async with asyncio.TaskGroup() as group:
            collecting = group.create_task(host.garbage.collect_once())
            await asyncio.sleep(60)
            assert not collecting.done()
            assert [record.pod_uid for record in host.ledger.vms()] == [POD]

    on(tmp_path, story)


def test_a_record_is_forgotten_only_once_its_vm_was_seen_gone(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        record = await a_vm(host, State.EXITED)
        gone(host)
        host.vms.faults["end delete"] = [broken(VmsError)] * 3
        for _ in range(3):
            await host.garbage.collect_once()
            assert host.ledger.get(POD) == record
        await host.garbage.collect_once()
        assert host.ledger.get(POD) is None

    on(tmp_path, story)


@pytest.mark.parametrize("calls", range(4))
def test_an_agent_killed_while_it_collects_is_followed_by_one_that_ends_it(
    tmp_path: Path, calls: int
) -> None:
    async def told() -> None:
        disk = a_disk()
        before = AHost(tmp_path, disk)
        async with before.running() as group:
            await a_vm(before, State.STARTED, runs=True)
            gone(before)
            before.vms.dies_before = len(before.vms.calls) + calls
            collecting = group.create_task(before.garbage.collect_once())
            await asyncio.sleep(60)
            collecting.cancel()
        host = AHost(tmp_path, disk)
        async with host.running():
            host.pods.gone = before.pods.gone
            await host.garbage.collect_once()
            assert host.names == [golden_name(A)]
            assert host.ledger.vms() == ()

    run(told)


# --- images -----------------------------------------------------------------------------------------------------------


async def shelved(host: AHost, *images: str) -> None:
    """Put images on the shelf, the first one longest ago."""
    for image in images:
        await host.shelf.stage(image)
        await asyncio.sleep(60)


def test_goldens_go_after_a_day_but_for_the_last(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A, B, C)
        await asyncio.sleep(86_400 - 600)
        await host.garbage.collect_once()
        assert host.goldens.ready_images() == {A, B, C}
        await asyncio.sleep(1200)
        await host.garbage.collect_once()
        assert host.goldens.ready_images() == {C}
        assert set(host.disk.images) == {C}  # the pulled image goes with its golden
        assert host.names == [golden_name(C)]
        assert [record.image for record in host.ledger.images()] == [C]

    on(tmp_path, story)


def test_an_image_in_use_or_wanted_stays_and_its_day_begins_when_that_ends(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A, B, C, D)
        await a_vm(host, State.DELIVERED, runs=True)
        host.pods.wanted = frozenset({B})
        for _ in range(30):
            await asyncio.sleep(3600)
            await host.garbage.collect_once()
        assert host.goldens.ready_images() == {A, B}
        host.pods.wanted = frozenset()
        await host.vms.stop(VM, grace_s=0)
        await host.ledger.write(a_record(State.EXITED, POD, image=A))
        await host.ledger.write(a_record(State.CLEARED, POD, image=A))
        await asyncio.sleep(86_400 - 3600)
        await host.garbage.collect_once()
        assert host.goldens.ready_images() == {A, B}

    on(tmp_path, story)


def test_nothing_is_dropped_before_it_is_known_what_is_wanted(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A, B)
        host.pods.synced = False
        await asyncio.sleep(3 * 86_400)
        await host.garbage.collect_once()
        await host.garbage.make_room(lambda: False)
        assert host.goldens.ready_images() == {A, B}

    on(tmp_path, story)


def test_under_pressure_the_oldest_go_until_there_is_room(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A, B, C)
        host.disk.free_bytes = 8 * GIB
        host.disks.measure()
        assert host.disks.state.pressure
        await host.garbage.collect_once()
        assert host.goldens.ready_images() == {C}  # 28 GiB: beyond the 20 where it stops
        assert host.disk.free_bytes == 28 * GIB

    on(tmp_path, story)


def test_under_pressure_the_last_golden_stays(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A, B)
        host.disk.free_bytes = 1 * GIB
        host.disks.measure()
        await host.garbage.collect_once()
        assert host.goldens.ready_images() == {B}
        await host.garbage.make_room(lambda: False)  # for an image that is wanted, even that goes
        assert host.goldens.ready_images() == set()

    on(tmp_path, story)


def test_an_image_that_fails_to_go_stops_no_other(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A, B, C)
        host.vms.faults["drop"] = [broken(VmsError)]
        await host.garbage.make_room(lambda: False)
        assert [record.image for record in host.ledger.images()] == [A]
        assert host.goldens.ready_images() == set()  # its golden went: it is not offered
        await host.garbage.collect_once()
        assert host.ledger.images() == ()
        assert host.disk.images == {}

    on(tmp_path, story)


def test_an_image_that_is_being_cloned_is_not_dropped_and_its_user_waits_for_a_drop(
    tmp_path: Path,
) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A)
        async with host.shelf.using(A, lambda _: None):
            await host.garbage.make_room(lambda: False)
            assert host.goldens.ready_images() == {A}
        async with asyncio.TaskGroup() as group:
            group.create_task(host.garbage.make_room(lambda: False))
            await asyncio.sleep(0.005)
            assert host.goldens.busy_images() == {A}  # it is being dropped
            await host.clone(A, "late")
        assert host.vms.count("pull") == 2
        assert "late" in host.names

    on(tmp_path, story)


def test_an_image_that_is_needed_is_not_dropped_whoever_says_so(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A)
        with host.goldens.held(A) as place:
            assert not await host.goldens.drop(A)
        async with place.lock:
            assert not await host.goldens.drop(A)
        assert not await host.goldens.drop(B)  # and what has no record is not ours
        assert host.goldens.ready_images() == {A}
        assert await host.goldens.drop(A)
        assert host.names == []

    on(tmp_path, story)


def test_an_image_that_a_pod_takes_during_a_pass_is_spared(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A, B)
        async with asyncio.TaskGroup() as group:
            group.create_task(host.garbage.make_room(lambda: False))
            await asyncio.sleep(0.005)
            assert host.goldens.busy_images() == {A}
            host.pods.wanted = frozenset({B})
        assert host.goldens.ready_images() == {B}

    on(tmp_path, story)


def test_half_an_image_that_nobody_wants_goes(tmp_path: Path) -> None:
    async def told() -> None:
        disk = a_disk()
        before = AHost(tmp_path, disk)
        before.vms.dies_before = 2
        async with before.running() as group:
            staging = group.create_task(before.shelf.stage(A))
            await asyncio.sleep(2 * PULL_S)
            staging.cancel()
        host = AHost(tmp_path, disk)
        (record,) = host.ledger.images()
        assert record.state is ImageState.FETCHING
        async with host.running():
            await host.garbage.collect_once()
        assert (host.names, disk.images, host.ledger.images()) == ([], {}, ())

    run(told)


def test_a_record_that_cannot_be_read_spares_every_image(tmp_path: Path) -> None:
    async def told() -> None:
        before = AHost(tmp_path)
        async with before.running():
            await shelved(before, A, B)
        (tmp_path / "records" / "vms" / "uid-9.json").write_text("{")
        host = AHost(tmp_path, before.disk)
        async with host.running():
            await asyncio.sleep(3 * 86_400)
            await host.garbage.make_room(lambda: False)
            assert host.goldens.ready_images() == {A, B}

    run(told)


# --- when -------------------------------------------------------------------------------------------------------------


def test_a_builders_host_is_left_as_it_is(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await shelved(host, A, B)
        await a_vm(host, State.EXITED)
        gone(host)
        await asyncio.sleep(3 * 86_400)
        host.disk.free_bytes = 1
        host.disks.measure()
        calls = list(host.vms.calls)
        async with asyncio.timeout(LATER_S):
            assert not await host.garbage.make_room(lambda: False)
            host.garbage.poke()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(LATER_S / 2):
                    await host.garbage.run()
        assert host.vms.calls == calls
        assert VM in host.names

    on(tmp_path, story, policy=GarbagePolicy(enabled=False))


def test_it_collects_every_so_often_and_at_once_when_the_disk_fills_up(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        host.disks.on_change(host.garbage.poke)
        await shelved(host, A, B)
        await a_vm(host, State.EXITED)
        gone(host)
        async with asyncio.TaskGroup() as group:
            collecting = group.create_task(host.garbage.run())
            await asyncio.sleep(200)
            assert VM in host.names
            await asyncio.sleep(200)
            assert VM not in host.names
            host.disk.free_bytes = 1
            host.disks.measure()
            await asyncio.sleep(10)
            assert host.goldens.ready_images() == {B}
            collecting.cancel()

    on(tmp_path, story)


def test_a_host_that_cannot_be_seen_loses_nothing(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await a_vm(host, State.EXITED)
        gone(host)
        host.vms.faults["list"] = [broken(VmsError)]
        await host.garbage.collect_once()
        assert VM in host.names
        await host.garbage.collect_once()
        assert VM not in host.names

    on(tmp_path, story)


def test_an_image_that_somebody_else_pulled_stays_whatever_is_needed(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        await host.vms.pull(A, lambda _: None)  # a person, before the agent ever heard of it
        for image in (A, B):
            await host.shelf.stage(image)
        assert await host.garbage.make_room(lambda: False)
        assert set(host.disk.images) == {A}
        assert host.names == []
        assert host.ledger.images() == ()

    on(tmp_path, story)


def test_an_image_that_a_killed_agent_had_pulled_is_ours(tmp_path: Path) -> None:
    async def story(host: AHost) -> None:
        host.vms.faults["begin golden"] = [broken(VmsError)]
        with pytest.raises(VmsError):
            await host.shelf.stage(A)
        assert set(host.disk.images) == {A}
        await host.shelf.stage(A)
        assert await host.garbage.make_room(lambda: False)
        assert not host.disk.images

    on(tmp_path, story)
