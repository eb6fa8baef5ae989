"""One fetch per image however many ask, nobody held up by another's, and never half a golden."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import structlog

from remuda.agent.decide.garbage import GarbagePolicy
from remuda.agent.decide.recorded import ImageRecord, ImageState
from remuda.agent.images import TRUSTED_S, WANTED_EVERY
from remuda.agent.shelf import SAY_S
from remuda.ports.vms import NameTaken, NoSpace, NotThere, Refused, VmsError, golden_name
from remuda.sim.loop import run
from tests.unit.agent.a_host import (
    GIB,
    HUNG_S,
    PULL_S,
    SIZE,
    A,
    AHost,
    B,
    C,
    D,
    a_disk,
    broken,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path


class Said:
    """What one who waits is told, and when."""

    def __init__(self) -> None:
        self.what: list[str] = []
        self.when: list[float] = []

    def __call__(self, sentence: str) -> None:
        self.what.append(sentence)
        self.when.append(asyncio.get_running_loop().time())


async def refused(awaitable: Awaitable[object], sort: type[VmsError]) -> str:
    """Await what must fail, and return what it says."""
    with pytest.raises(sort) as caught:
        await awaitable
    return str(caught.value)


# --- one fetch --------------------------------------------------------------------------------------------------------


def test_two_pods_of_one_image_make_one_pull(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running() as group:
            pods = [group.create_task(host.clone(A, f"pod-{n}")) for n in range(10)]
            await asyncio.wait(pods)
        assert host.vms.count("pull") == 1
        assert host.vms.count("end golden") == 1
        assert host.vms.count("clone") == 10
        assert host.goldens.ready_images() == {A}

    run(story)


def test_an_image_that_is_there_is_neither_fetched_nor_looked_at_again(tmp_path: Path) -> None:
    async def story() -> None:
        host, said = AHost(tmp_path), Said()
        async with host.running():
            await host.clone(A, "one")
            calls = len(host.vms.calls)
            await host.clone(A, "two", said)
            assert host.vms.calls[calls:] == [f"clone {golden_name(A)}"]
            assert said.what == []

    run(story)


def test_those_who_wait_are_told_at_once_and_then_now_and_then(tmp_path: Path) -> None:
    async def story() -> None:
        host, first, late = AHost(tmp_path), Said(), Said()
        async with host.running() as group:
            group.create_task(host.clone(A, "one", first))
            await asyncio.sleep(PULL_S / 2 + 1)
            task = group.create_task(host.clone(A, "two", late))
            await asyncio.sleep(0.001)
            assert len(late.what) == 1
            assert "5.0 of 10.0 GiB have come (50%)" in late.what[0]
            await task
        assert first.what[0] == f"The image {A} is being fetched"
        assert first.when[0] < 1
        assert len(first.what) == 5
        gaps = [b - a for a, b in zip(first.when, first.when[1:], strict=False)]
        assert min(gaps) >= SAY_S

    run(story)


def test_the_log_says_now_and_then_that_a_fetch_goes_on(tmp_path: Path) -> None:
    async def story() -> list[str]:
        host = AHost(tmp_path)
        with structlog.testing.capture_logs() as logs:
            async with host.running():
                await host.clone(A, "one")
        return [line["how_far"] for line in logs if line["event"] == "fetching an image"]

    said = run(story)
    assert said[0] == "it begins"
    assert "5.0 of 10.0 GiB have come (50%)" in said
    assert 3 <= len(said) <= PULL_S / SAY_S + 2, "each ten seconds at most"


def test_a_fetch_is_seen_in_the_metrics(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        sample = host.metrics.registry.get_sample_value
        async with host.running() as group:
            group.create_task(host.clone(A, "one"))
            await asyncio.sleep(PULL_S / 2 + 1)
            assert sample("remuda_agent_image_fetches") == 1
            assert sample("remuda_agent_image_pulled_bytes_total") == SIZE // 2
            assert sample("remuda_agent_image_fetch_done_bytes") == SIZE // 2
            assert sample("remuda_agent_image_fetch_total_bytes") == SIZE
        assert sample("remuda_agent_image_fetch_done_bytes") == 0
        assert sample("remuda_agent_image_fetch_total_bytes") == 0
        assert sample("remuda_agent_image_fetches") == 0
        assert sample("remuda_agent_image_pulled_bytes_total") == SIZE

    run(story)


def test_the_size_of_all_is_not_known_while_that_of_one_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        sample = host.metrics.registry.get_sample_value
        async with host.running() as group:
            group.create_task(host.clone(A, "one"))
            await asyncio.sleep(PULL_S / 2 + 1)
            group.create_task(host.clone(B, "two"))
            await asyncio.sleep(1)
            assert sample("remuda_agent_image_fetches") == 2
            assert sample("remuda_agent_image_fetch_total_bytes") == 0
            await asyncio.sleep(PULL_S / 4)
            assert sample("remuda_agent_image_fetch_total_bytes") == 2 * SIZE

    run(story)


# --- nobody is held up by another -------------------------------------------------------------------------------------


def test_hung_pulls_delay_no_other_image(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        host.vms.hung = {A, B, C}
        async with host.running() as group:
            hung = [group.create_task(refused(host.clone(i, i[-3:]), VmsError)) for i in (A, B, C)]
            await asyncio.sleep(1)
            before = host.clock.monotonic()
            await host.clone(D, "d")
            assert host.clock.monotonic() - before < 3 * PULL_S
            assert not any(task.done() for task in hung)
            host.vms.hung.clear()
            await asyncio.sleep(2 * HUNG_S)
            assert all("hung" in task.result() for task in hung)
            await host.clone(A, "a")  # and is tried again

    run(story)


def test_only_so_many_images_are_pulled_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running() as group:
            for image in (A, B, C, D):
                group.create_task(host.clone(image, image[-3:]))
                await asyncio.sleep(0)
        assert host.vms.count("end golden") == 4
        assert host.vms.most_pulling == 2

    run(story)


def test_what_is_staged_leaves_a_turn_to_pods_and_waits_for_them(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running() as group:
            group.create_task(host.shelf.stage(A))
            group.create_task(host.shelf.stage(B))
            await asyncio.sleep(1)
            assert host.vms.calls == [f"pull {A}"]
            group.create_task(host.clone(C, "c"))
            await asyncio.sleep(1)
            assert host.vms.calls == [f"pull {A}", f"pull {C}"]
            group.create_task(host.clone(B, "b"))  # now a Pod wants what was only staged
            group.create_task(host.shelf.stage(D))
            await asyncio.sleep(PULL_S)
            pulls = [call for call in host.vms.calls if call.startswith("pull")]
            assert pulls[2] == f"pull {B}"
        assert host.goldens.ready_images() == {A, B, C, D}
        assert host.names == sorted([*map(golden_name, (A, B, C, D)), "b", "c"])

    run(story)


def test_what_is_staged_and_waits_begins_at_once_when_a_pod_wants_it(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running() as group:
            group.create_task(host.shelf.stage(A))
            group.create_task(host.shelf.stage(B))
            await asyncio.sleep(1)
            assert host.vms.count("pull") == 1
            group.create_task(host.clone(B, "b"))
            await asyncio.sleep(1)
            assert host.vms.calls == [f"pull {A}", f"pull {B}"]

    run(story)


def test_who_waits_when_the_shelf_ends_is_given_nothing_half(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with asyncio.TaskGroup() as group:
            shelf = group.create_task(host.shelf.run())
            pod = group.create_task(host.clone(A, "one"))
            await asyncio.sleep(1)
            shelf.cancel()  # half a fetch is left, and nobody pretends otherwise
            await asyncio.sleep(10 * PULL_S)
            assert not pod.done()
            pod.cancel()
        assert host.goldens.ready_images() == set()
        assert "one" not in host.disk.vms
        host.records.close()

    run(story)


def test_who_is_cancelled_takes_nothing_from_the_others(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running() as group:
            first = group.create_task(host.clone(A, "one"))
            await asyncio.sleep(1)
            second = group.create_task(host.clone(A, "two"))
            await asyncio.sleep(1)
            first.cancel()
            await second
        assert host.vms.count("pull") == 1
        assert "two" in host.disk.vms
        assert "one" not in host.disk.vms

    run(story)


def test_a_fetch_that_nobody_waits_for_goes_on_and_is_not_collected(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running() as group:
            only = group.create_task(host.clone(A, "one"))
            await asyncio.sleep(1)
            only.cancel()
            await asyncio.sleep(1)
            assert host.goldens.busy_images() == {A}
            await host.garbage.make_room(lambda: False)
            await asyncio.sleep(PULL_S)
            assert host.goldens.ready_images() == {A}
            assert host.goldens.busy_images() == set()
        assert host.vms.count("pull") == 1

    run(story)


# --- failing ----------------------------------------------------------------------------------------------------------


def test_all_who_wait_hear_of_a_failure_and_the_next_one_tries_again(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        host.vms.faults["pull"] = [broken(Refused, "there is no such image")]
        async with host.running() as group:
            told = [
                group.create_task(refused(host.clone(A, f"pod-{n}"), Refused)) for n in range(3)
            ]
            await asyncio.wait(told)
            assert host.goldens.ready_images() == set()
            await host.clone(A, "again")
        assert host.vms.count("pull") == 2
        assert all("there is no such image" in task.result() for task in told)

    run(story)


def test_a_golden_that_went_missing_is_made_anew(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running():
            await host.clone(A, "one")
            del host.disk.vms[golden_name(A)]
            await refused(host.clone(A, "two"), NotThere)
            await host.clone(A, "two")
            assert host.vms.count("end golden") == 2
            del host.disk.vms[golden_name(A)]
            host.goldens.saw(await host.vms.inventory())
            assert host.goldens.ready_images() == set()
            await host.clone(A, "three")
            assert host.goldens.ready_images() == {A}

    run(story)


def test_a_golden_of_somebody_else_is_neither_used_nor_replaced(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        await MakesVms(host).make(golden_name(A))
        async with host.running():
            assert golden_name(A) in await refused(host.clone(A, "one"), NameTaken)
        assert host.vms.calls == []
        assert host.ledger.images() == ()

    run(story)


def test_a_golden_that_somebody_makes_during_our_pull_is_theirs(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running() as group:
            pod = group.create_task(refused(host.clone(A, "one"), NameTaken))
            await asyncio.sleep(PULL_S / 2)
            await MakesVms(host).make(golden_name(A))
            await pod
            await refused(host.clone(A, "one"), NameTaken)
            await host.garbage.make_room(lambda: False)
        assert golden_name(A) in host.disk.vms
        assert host.ledger.images() == ()

    run(story)


def test_a_golden_that_somebody_runs_is_not_cloned(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running():
            await host.clone(A, "one")
            await host.vms.run(golden_name(A))
            host.goldens.saw(await host.vms.inventory())
            await refused(host.clone(A, "two"), VmsError)
            host.vms.halt(golden_name(A))
            await host.clone(A, "two")

    run(story)


def test_an_old_sight_is_not_trusted(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running():
            await host.clone(A, "one")
            await host.vms.run(golden_name(A))
            await asyncio.sleep(TRUSTED_S)
            await refused(host.clone(A, "two"), VmsError)

    run(story)


class MakesVms:
    """Somebody else on the host."""

    def __init__(self, host: AHost) -> None:
        self._host = host

    async def make(self, name: str) -> None:
        disk = self._host.disk
        disk.images.setdefault(D, SIZE)
        if golden_name(D) not in disk.vms:
            await super(type(self._host.vms), self._host.vms).make_golden(D, golden_name(D))
        disk.vms[name] = disk.vms.pop(golden_name(D))


# --- room -------------------------------------------------------------------------------------------------------------


def test_an_image_that_does_not_fit_is_not_even_begun(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path, a_disk(free_gib=10.5))
        async with host.running():
            said = await refused(host.clone(A, "one"), NoSpace)
        assert "needs 10.0 GiB and 1.0 GiB must stay free, but only 10.5 GiB are free" in said
        assert host.vms.count("pull") == 0

    run(story)


def test_room_is_made_once_and_only_as_much_as_needed(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path, a_disk(free_gib=25))
        async with host.running():
            await host.shelf.stage(A)
            await asyncio.sleep(60)
            await host.shelf.stage(B)
            await host.clone(C, "one")
            assert host.goldens.ready_images() == {B, C}  # the older one went
        assert host.vms.count("pull") == 3

    run(story)


def test_what_is_in_use_does_not_make_room(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path, a_disk(free_gib=25))
        async with host.running():
            await host.shelf.stage(A)
            await host.shelf.stage(B)
            host.pods.wanted = frozenset({A, B})
            await refused(host.clone(C, "one"), NoSpace)
            assert host.goldens.ready_images() == {A, B}
            host.pods.wanted = frozenset({B})
            await host.clone(C, "one")
            assert host.goldens.ready_images() == {B, C}

    run(story)


@pytest.mark.parametrize("call", ["pull", "begin golden", "end golden"])
def test_a_disk_that_runs_full_is_cleaned_and_it_is_tried_once_more(
    tmp_path: Path, call: str
) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running():
            await host.shelf.stage(B)
            host.vms.faults[call] = [broken(NoSpace)]
            await host.clone(A, "one")
            assert host.goldens.ready_images() == {A}  # all that nobody used went
            await host.shelf.stage(B)
            host.vms.faults[call] = [broken(NoSpace), broken(NoSpace), broken(NoSpace)]
            pulls = host.vms.count(call)
            await refused(host.clone(C, "two"), NoSpace)
            assert host.vms.count(call) == pulls + 2

    run(story)


@pytest.mark.parametrize(("enabled", "left"), [(True, {A}), (False, {A, B})])
def test_a_vm_that_finds_no_room_has_what_nobody_uses_removed(
    tmp_path: Path,
    enabled: bool,  # noqa: FBT001 - a column of the table
    left: set[str],
) -> None:
    async def story() -> None:
        host = AHost(tmp_path, policy=GarbagePolicy(enabled=enabled))
        async with host.running():
            await host.shelf.stage(A)
            await host.shelf.stage(B)
            host.vms.faults["clone"] = [broken(NoSpace)]
            await refused(host.clone(A, "one"), NoSpace)
            assert host.goldens.ready_images() == left  # what it is made from stays
            await host.clone(A, "one")

    run(story)


@pytest.mark.parametrize("call", ["pull", "begin golden"])
def test_a_builders_disk_is_not_cleaned(tmp_path: Path, call: str) -> None:
    async def story() -> None:
        host = AHost(tmp_path, policy=GarbagePolicy(enabled=False))
        async with host.running():
            await host.shelf.stage(B)
            host.vms.faults[call] = [broken(NoSpace)]
            tries = host.vms.count(call)
            await refused(host.clone(A, "one"), NoSpace)
            assert host.vms.count(call) == tries + 1
            assert host.goldens.ready_images() == {B}

    run(story)


def test_two_images_that_do_not_fit_together_are_not_fetched_together(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path, a_disk(free_gib=15))
        async with host.running() as group:
            first = group.create_task(host.clone(A, "one"))
            await asyncio.sleep(PULL_S / 2)
            await refused(host.clone(B, "two"), NoSpace)
            await first
        assert host.disk.free_bytes == 5 * GIB

    run(story)


def test_a_disk_that_cannot_be_measured_refuses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path, a_disk(free_gib=10), measured=False)
        async with host.running():
            host.pods.wanted = frozenset({A})
            await host.clone(A, "one")
            await refused(host.clone(B, "two"), NoSpace)
            assert host.vms.count("pull") == 3  # the pull itself told, twice

    run(story)


def test_an_image_that_is_pulled_already_needs_no_room(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path, a_disk(free_gib=2))
        host.disk.images[A] = SIZE
        async with host.running():
            await host.clone(A, "one")

    run(story)


# --- what is written down ---------------------------------------------------------------------------------------------


def test_that_an_image_is_wanted_is_written_down_now_and_then(tmp_path: Path) -> None:
    async def story() -> None:
        host = AHost(tmp_path)
        async with host.running():
            await host.clone(A, "one")
            made = host.ledger.image(A)
            assert made is not None
            await asyncio.sleep(60)
            await host.clone(A, "two")
            assert host.ledger.image(A) == made
            await asyncio.sleep(WANTED_EVERY.total_seconds())
            await host.clone(A, "three")
            later = host.ledger.image(A)
            assert later is not None
            assert later.wanted_at - made.wanted_at >= WANTED_EVERY
            assert host.clock.now() - later.wanted_at < timedelta(seconds=1)

    run(story)


def test_half_a_golden_of_an_earlier_agent_is_discarded(tmp_path: Path) -> None:
    async def story() -> None:
        disk = a_disk()
        before = AHost(tmp_path, disk)
        before.vms.dies_before = 2  # after "pull" and "begin golden", with half of it on the disk
        async with before.running() as group:
            pod = group.create_task(before.clone(A, "one"))
            await asyncio.sleep(2 * PULL_S)
            pod.cancel()
        assert disk.half == {golden_name(A)}
        host = AHost(tmp_path, disk)
        assert host.goldens.ready_images() == set()
        async with host.running():
            await host.clone(A, "one")
        assert disk.half == set()
        assert host.vms.count("delete") == 1

    run(story)


@pytest.mark.parametrize("calls", range(12))
def test_an_agent_killed_between_any_two_steps_leaves_what_the_next_can_use(
    tmp_path: Path, calls: int
) -> None:
    """Fetch, drop, fetch again; killed before each call in turn. Never is half a golden cloned: the host checks."""

    async def story() -> None:
        disk = a_disk()
        before = AHost(tmp_path, disk)
        before.vms.dies_before = calls
        async with before.running() as group:
            life = group.create_task(fetch_drop_fetch(before))
            await asyncio.sleep(10 * PULL_S)
            life.cancel()
        host = AHost(tmp_path, disk)
        async with host.running():
            await host.clone(A, "after")
            assert host.ledger.images() == (
                ImageRecord(
                    image=A, state=ImageState.READY, wanted_at=host.ledger.images()[0].wanted_at
                ),
            )
            assert disk.half == set()

    async def fetch_drop_fetch(host: AHost) -> None:
        await host.clone(A, "one")
        assert await host.goldens.drop(A)
        await host.clone(A, "two")

    run(story)
