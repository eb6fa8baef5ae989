from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.support.eventually import eventually
from tests.support.tart.faults import Fault

if TYPE_CHECKING:
    from tests.support.tart.installed import StandIn

IDLE = "#!/bin/sh\nexec sleep 600\n"


def test_a_clone_has_a_mac_of_its_own_and_the_serial_of_its_source(tart: StandIn) -> None:
    source = tart.make("golden", IDLE)
    assert tart.call("clone", "golden", "a").returncode == 0
    clone = tart.vm("a")
    assert clone.config()["macAddress"] != source.config()["macAddress"]
    assert clone.config()["ecid"] == source.config()["ecid"]
    assert clone.disk.read_bytes() == source.disk.read_bytes()


def test_a_clone_leaves_holes_holes(tart: StandIn) -> None:
    tart.make("golden", IDLE, disk_bytes=2_000_000_000)
    tart.call("clone", "golden", "a")
    disk = tart.vm("a").disk.stat()
    assert disk.st_size == 2_000_000_000
    assert disk.st_blocks * 512 < 1_000_000


def test_a_clone_replaces_what_had_its_name(tart: StandIn) -> None:
    tart.make("golden", IDLE)
    tart.make("a", "#!/bin/sh\necho old\n")
    assert tart.call("clone", "golden", "a").returncode == 0
    assert tart.vm("a").disk.read_bytes().startswith(IDLE.encode())
    assert list((tart.home / "tmp").iterdir()) == []


def test_clones_of_one_home_wait_for_each_other_and_all_are_whole(tart: StandIn) -> None:
    tart.make("golden", IDLE)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: tart.call("clone", "golden", f"vm-{n}"), range(4)))
    assert [answer.returncode for answer in answers] == [0] * 4
    macs = {tart.vm(f"vm-{n}").config()["macAddress"] for n in range(4)}
    assert len(macs) == 4


async def test_a_clone_that_is_killed_half_way_leaves_nothing(tart: StandIn) -> None:
    tart.make("golden", IDLE)
    tart.order(Fault(verb="clone", kind="stall", vm="a"))
    clone = tart.start("clone", "golden", "a")
    scratch = tart.home / "tmp"

    async def stalls() -> bool:
        return not tart.desk.waiting()

    await eventually(stalls)
    assert list(scratch.glob("*/nvram.bin")), "it has copied"
    waits = tart.start("clone", "golden", "b")
    tart.kill(clone)
    assert waits.wait(30) == 0, "its lock went with it"
    assert list(tart.listed()) == ["b", "golden"]
    assert list(scratch.iterdir()) == [], "what it left was cleaned by list"


def test_a_random_serial_changes_the_ecid_of_a_mac_only(tart: StandIn) -> None:
    mac, linux = tart.make("mac"), tart.make("linux", os_name="linux")
    before = mac.config(), linux.config()
    for name in ("mac", "linux"):
        assert tart.call("set", name, "--random-serial").returncode == 0
    assert mac.config()["ecid"] != before[0]["ecid"]
    assert mac.config()["macAddress"] == before[0]["macAddress"]
    assert linux.config() == before[1]


def test_set_changes_what_it_is_told_to(tart: StandIn) -> None:
    vm = tart.make("a")
    vm.save({**vm.config(), "displayRefit": True})
    size = ["--cpu", "8", "--memory", "2048", "--display", "800x600", "--disk-size", "1"]
    assert tart.call("set", "a", *size).returncode == 0
    config = vm.config()
    assert (config["cpuCount"], config["memorySize"]) == (8, 2048 * 1024 * 1024)
    assert config["display"] == {"width": 800, "height": 600}
    assert vm.disk.stat().st_size == 1_000_000_000
    assert "displayRefit" not in config, "it is reset if it is not given"


def test_set_refuses_less_than_the_least_and_a_smaller_disk(tart: StandIn) -> None:
    tart.make("a", disk_bytes=2_000_000_000)
    for arguments, text in (
        (["--cpu", "0"], "1 CPU cores at minimum"),
        (["--memory", "1"], "bytes of memory at minimum"),
        (["--disk-size", "1"], "should be larger"),
    ):
        answer = tart.call("set", "a", *arguments)
        assert answer.returncode == 1
        assert text in answer.stderr


def test_delete_takes_several_names_and_stops_at_the_first_that_fails(tart: StandIn) -> None:
    for name in ("a", "b", "c"):
        tart.make(name)
    assert tart.call("delete", "a", "x", "b").returncode == 2
    assert list(tart.listed()) == ["b", "c"]


def test_prune_goes_by_age_and_by_budget(tart: StandIn) -> None:
    old, new = tart.make("old"), tart.make("new")
    for vm in (old, new):
        vm.disk.write_bytes(os.urandom(1_200_000))
    os.utime(old.nvram, (1_000_000_000, 1_000_000_000))
    assert tart.call("prune", "--entries", "vms", "--older-than", "1").returncode == 0
    assert list(tart.listed()) == ["new"]
    assert tart.call("prune", "--entries", "vms", "--space-budget", "0").returncode == 0
    assert tart.listed() == {}
