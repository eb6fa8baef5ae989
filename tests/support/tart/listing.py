"""What only looks: list, get, ip."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.tart import leases
from tests.support.tart.cache import Cache
from tests.support.tart.failures import TartError
from tests.support.tart.moments import now_s, pause
from tests.support.tart.vms import GB, MB, Vm

if TYPE_CHECKING:
    import argparse

    from tests.support.tart.faults import Desk
    from tests.support.tart.home import Home

_HEADER = ("Source", "Name", "Disk", "Size", "Accessed", "State")


def list_(home: Home, _desk: Desk, asked: argparse.Namespace) -> None:
    local = [("local", vm) for vm in home.local()]
    cached = [("OCI", vm) for vm in Cache(home.images).entries()]
    chosen = {"local": local, "oci": cached}.get(asked.source or "", local + cached)
    rows = [row for source, vm in chosen if (row := _row(source, vm)) is not None]
    if asked.quiet:
        _say("\n".join(str(row["Name"]) for row in rows))
    elif asked.format == "json":
        _say(pretty(rows))
    elif rows:
        cells = [[str(row[column]) for column in _HEADER] for row in rows]
        _say(_table([list(_HEADER), *cells]))
    else:
        _say("")


def _row(source: str, vm: Vm) -> dict[str, Any] | None:
    try:
        state = vm.state() if source == "local" else "stopped"
        return {
            "Source": source,
            "Name": vm.name,
            "Disk": vm.disk_gb(),
            "Size": vm.allocated_bytes() // GB,
            "Accessed": vm.accessed(),
            "Running": state == "running",
            "State": state,
        }
    except FileNotFoundError:  # it went while we looked
        return None


def get_(home: Home, _desk: Desk, asked: argparse.Namespace) -> None:
    vm = home.open_local(asked.name)
    config = vm.config()
    display = config["display"]
    state = vm.state()
    row = {
        "OS": config["os"],
        "CPU": config["cpuCount"],
        "Memory": config["memorySize"] // MB,
        "Disk": vm.disk_gb(),
        "DiskFormat": config.get("diskFormat", "raw"),
        "Size": f"{vm.allocated_bytes() / GB:.3f}",  # a text here, a number in list
        "Display": f"{display['width']}x{display['height']}",
        "Running": state == "running",
        "State": state,
    }
    if asked.format == "json":
        _say(pretty(row))
    else:
        _say(_table([list(row), [str(value) for value in row.values()]]))


def ip_(home: Home, _desk: Desk, asked: argparse.Namespace) -> None:
    vm = home.open_local(asked.name)
    mac = str(vm.config()["macAddress"])
    for left in range(max(0, asked.wait), -1, -1):
        found = leases.address(home.leases, mac, int(now_s()))
        if found:
            _say(found)
            return
        if left or not asked.wait:
            pause(1.0)  # a miss costs a second, also without --wait
    running = bool(vm.pid())
    raise TartError("no IP address found" + ("" if running else ", is your VM running?"))


def pretty(value: object) -> str:
    """Write JSON as Swift does: a blank on both sides of the colon."""
    return json.dumps(value, indent=2, separators=(",", " : "), ensure_ascii=False)


def _table(rows: list[list[str]]) -> str:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    padded = [[cell.ljust(w) for cell, w in zip(row, widths, strict=True)] for row in rows]
    return "\n".join(" ".join(row).rstrip() for row in padded)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is a program
