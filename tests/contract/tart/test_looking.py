from __future__ import annotations

import fcntl
import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.tart import leases

if TYPE_CHECKING:
    from tests.support.tart.installed import StandIn


def test_an_empty_list_is_a_blank_line_and_an_empty_array(tart: StandIn) -> None:
    assert tart.call("list").stdout == "\n"
    assert json.loads(tart.call("list", "--format", "json").stdout) == []


def test_list_has_these_fields_and_no_others(tart: StandIn) -> None:
    tart.make("b", disk_bytes=3_500_000_000)
    tart.make("a")
    answer = tart.call("list", "--format", "json")
    rows = json.loads(answer.stdout)
    assert [row["Name"] for row in rows] == ["a", "b"], "by name"
    accessed = rows[1].pop("Accessed")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", accessed)
    assert rows[1] == {
        "Source": "local",
        "Name": "b",
        "Disk": 3,
        "Size": 0,
        "Running": False,
        "State": "stopped",
    }
    assert '"Source" : "local"' in answer.stdout, "a blank on both sides of the colon"


def test_list_as_text_has_a_header(tart: StandIn) -> None:
    tart.make("a")
    header, row = tart.call("list").stdout.splitlines()
    assert header.split() == ["Source", "Name", "Disk", "Size", "Accessed", "State"]
    assert row.split()[:2] == ["local", "a"]
    assert tart.call("list", "-q", "--source", "local").stdout == "a\n"
    assert tart.call("list", "-q", "--source", "oci").stdout == "\n"


def test_get_gives_the_size_as_a_text(tart: StandIn) -> None:
    tart.make("a", os_name="linux")
    answer = json.loads(tart.call("get", "a", "--format", "json").stdout)
    assert answer == {
        "OS": "linux",
        "CPU": 4,
        "Memory": 4096,
        "Disk": 0,
        "DiskFormat": "raw",
        "Size": "0.000",
        "Display": "1024x768",
        "Running": False,
        "State": "stopped",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["get", "x"], id="get"),
        pytest.param(["ip", "x"], id="ip"),
        pytest.param(["set", "x", "--cpu", "2"], id="set"),
        pytest.param(["stop", "x"], id="stop"),
        pytest.param(["delete", "x"], id="delete"),
        pytest.param(["clone", "x", "y"], id="clone"),
        pytest.param(["exec", "x", "true"], id="exec"),
        pytest.param(["push", "x", "registry.test/a"], id="push"),
    ],
)
def test_a_vm_that_is_not_there_is_code_2_and_this_text(
    tart: StandIn, arguments: list[str]
) -> None:
    answer = tart.call(*arguments)
    assert answer.returncode == 2
    assert answer.stderr == 'the specified VM "x" does not exist\n'
    assert answer.stdout == ""


def test_run_of_a_vm_that_is_not_there_goes_through_the_parser(tart: StandIn) -> None:
    answer = tart.call("run", "x", "--no-graphics")
    assert answer.returncode == 1
    assert answer.stderr == 'Error: the specified VM "x" does not exist\n'


@pytest.mark.parametrize("name", ["config.json", "disk.img", "nvram.bin"])
def test_a_vm_that_misses_a_file_is_not_listed_and_says_so(tart: StandIn, name: str) -> None:
    (tart.make("a").folder / name).unlink()
    assert tart.listed() == {}
    answer = tart.call("get", "a")
    assert answer.returncode == 1
    assert answer.stderr == (
        "VM is missing some of its files (config.json, disk.img or nvram.bin)\n"
    )
    assert tart.call("delete", "a").returncode == 0, "it can be deleted"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no verb"),
        pytest.param(["dance"], id="a verb that is none"),
        pytest.param(["get"], id="no name"),
        pytest.param(["list", "--format", "xml"], id="a value that is none"),
        pytest.param(["clone", "a", "b/c"], id="a new name with a slash"),
        pytest.param(
            ["run", "a", "--graphics", "--no-graphics"], id="flags that exclude each other"
        ),
        pytest.param(["prune"], id="nothing to prune by"),
    ],
)
def test_a_wrong_call_is_code_64_with_usage(tart: StandIn, arguments: list[str]) -> None:
    tart.make("a")
    answer = tart.call(*arguments)
    assert answer.returncode == 64
    assert answer.stderr.startswith("Error: ")
    assert "Usage" in answer.stderr or "usage" in answer.stderr


def test_an_address_is_found_by_the_mac_also_when_the_vm_is_stopped(tart: StandIn) -> None:
    vm = tart.make("a")
    vm.save({**vm.config(), "macAddress": "0a:0b:0c:00:01:02"})
    stale = "{\n\tip_address=192.168.64.9\n\thw_address=1,a:b:c:0:1:2\n\tlease=0x10\n}\n"
    good = "{\n\tip_address=192.168.64.7\n\thw_address=1,a:b:c:0:1:2\n\tlease=0xffffffff\n}\n"
    leases_file = tart.desk.folder / "dhcpd_leases"
    leases_file.write_text(stale + good)
    assert tart.call("ip", "a").stdout == "192.168.64.7\n"
    leases_file.write_text(stale)
    missed = tart.call("ip", "a")
    assert (missed.returncode, missed.stderr) == (1, "no IP address found, is your VM running?\n")
    leases_file.write_text(good + "{\n\tip_address\n}\n")
    assert tart.call("ip", "a").returncode == 1, "one broken block spoils the file"


def test_addresses_run_out(tart: StandIn) -> None:
    path = tart.desk.folder / "dhcpd_leases"
    given = {leases.grant(path, f"2:0:0:0:0:{number:x}", 1000) for number in range(253)}
    assert len(given) == 253
    with pytest.raises(Exception, match="exhausted"):
        leases.grant(path, "2:0:0:0:1:0", 1000)
    assert leases.grant(path, "2:0:0:0:1:0", 1000 + leases.DAY_S + 1), "a day later there is room"


def test_every_command_but_pull_and_clone_cleans_tmp(tart: StandIn) -> None:
    tart.make("a")
    left = tart.home / "tmp" / "left-by-a-pull"
    left.mkdir(parents=True)
    assert tart.call("clone", "a", "b").returncode == 0
    assert left.exists()
    tart.call("list")
    assert not left.exists()


def test_what_somebody_holds_in_tmp_is_left_alone(tart: StandIn) -> None:
    held = tart.home / "tmp" / "held"
    held.mkdir(parents=True)
    file = os.open(held, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        tart.call("list")
        assert held.exists()
    finally:
        os.close(file)
    tart.call("list")
    assert not held.exists()
