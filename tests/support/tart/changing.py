"""What changes a VM that is there: set, delete, stop, exec, prune."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

from tests.support.tart.cache import Cache
from tests.support.tart.cloning import image_of
from tests.support.tart.failures import TartError, does_not_exist, is_running, not_running
from tests.support.tart.guests import guest_folder
from tests.support.tart.home import remove
from tests.support.tart.moments import now_s, pause
from tests.support.tart.program import refuse
from tests.support.tart.vms import GB, MB, Vm, new_ecid, new_mac

if TYPE_CHECKING:
    import argparse

    from tests.support.tart.faults import Desk
    from tests.support.tart.home import Home

_POLL_S = 0.1
_DAY_S = 86_400


def set_(home: Home, _desk: Desk, asked: argparse.Namespace) -> None:
    vm = home.open_local(asked.name)
    config = vm.config()
    _set_resources(config, asked)
    config.pop("displayRefit", None)
    if asked.display_refit is not None:
        config["displayRefit"] = asked.display_refit
    if asked.random_mac:
        config["macAddress"] = new_mac()
    if asked.random_serial and config["os"] == "darwin":
        config["ecid"] = new_ecid()
    if asked.disk_size is not None:
        _grow(vm, asked.disk_size)
    vm.save(config)


def _set_resources(config: dict[str, Any], asked: argparse.Namespace) -> None:
    if asked.cpu is not None:
        _at_least(config["cpuCountMin"], asked.cpu, "CPU cores")
        config["cpuCount"] = asked.cpu
    if asked.memory is not None:
        _at_least(config["memorySizeMin"], asked.memory * MB, "bytes of memory")
        config["memorySize"] = asked.memory * MB
    if asked.display is not None:
        width, _, height = asked.display.partition("x")
        config["display"] = {"width": int(width), "height": int(height)}


def _at_least(minimum: int, wanted: int, what: str) -> None:
    if wanted < minimum:
        raise TartError(f"VM should have {minimum} {what} at minimum (requested {wanted})")


def _grow(vm: Vm, size_gb: int) -> None:
    now, wanted = vm.disk.stat().st_size, size_gb * GB
    if wanted < now:
        raise TartError(
            f"new disk size of {wanted} bytes should be larger than the current one of {now} bytes"
        )
    os.truncate(vm.disk, wanted)


def delete_(home: Home, _desk: Desk, asked: argparse.Namespace) -> None:
    for name in asked.names:
        if "/" in name:
            _delete_image(home, name)
            continue
        vm = home.vm(name)
        if not vm.folder.exists() or name in {"", ".", ".."}:
            raise does_not_exist(name)
        if vm.pid():
            raise is_running(name)
        remove(vm.folder)


def _delete_image(home: Home, name: str) -> None:
    cache = Cache(home.images)
    image = image_of(name)
    if not cache.vm(image).initialized:
        raise does_not_exist(name)
    cache.delete(image)


def stop_(home: Home, _desk: Desk, asked: argparse.Namespace) -> None:
    vm = home.open_local(asked.name)
    match vm.state():
        case "suspended":
            vm.saved_state.unlink()
        case "running":
            _stop(vm, asked.timeout)
        case _:
            raise not_running(asked.name)


def _stop(vm: Vm, timeout_s: float) -> None:
    pid = vm.pid()
    if not pid:
        raise not_running(vm.name)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
        while timeout_s > 0:
            if vm.pid() != pid:
                return
            pause(_POLL_S)
            timeout_s -= _POLL_S
        os.kill(pid, signal.SIGKILL)
        while vm.pid() == pid:
            pause(_POLL_S / 10)


def exec_(home: Home, desk: Desk, asked: argparse.Namespace) -> int:
    vm = home.open_local(asked.name)
    if not vm.pid():
        raise not_running(asked.name)
    if not asked.command:
        refuse("Missing expected argument '<command> ...'")
    folder = guest_folder(desk.folder, asked.name)
    if not (folder / "boot").exists():  # only guests that are processes can be reached
        raise TartError(
            "Failed to connect to the VM using its control socket: "
            "no agent answers, is the Tart Guest Agent running?"
        )
    done = subprocess.run(asked.command, cwd=folder, check=False, stdin=None)  # noqa: S603 - a test's own command
    return done.returncode


def prune_(home: Home, _desk: Desk, asked: argparse.Namespace) -> None:
    if asked.older_than is None and asked.space_budget is None:
        refuse("at least one pruning criteria must be specified")
    cache = Cache(home.images)
    entries = list(home.local()) if asked.entries == "vms" else cache.digests()
    doomed = _old(entries, asked.older_than) + _over_budget(entries, asked.space_budget)
    for vm in {vm.name: vm for vm in doomed}.values():
        if not vm.pid():
            remove(vm.folder)
    cache.collect()


def _old(entries: list[Vm], days: int | None) -> list[Vm]:
    if days is None:
        return []
    limit = now_s() - days * _DAY_S
    return [vm for vm in entries if vm.accessed_s() <= limit]


def _over_budget(entries: list[Vm], budget_gb: int | None) -> list[Vm]:
    if budget_gb is None:
        return []
    left, doomed = budget_gb * GB, []
    for vm in sorted(entries, key=lambda vm: vm.accessed_s(), reverse=True):
        if (size := vm.allocated_bytes()) <= left:
            left -= size
        else:
            doomed.append(vm)
    return doomed
