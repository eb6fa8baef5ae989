"""run: boot a VM and stay until it ends. Its argv stays visible, its lock says that it runs."""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.tart import leases
from tests.support.tart.failures import TartError, already_running, too_many
from tests.support.tart.guests import Guest, Machine, Share, guest_folder
from tests.support.tart.home import remove
from tests.support.tart.locks import folder_lock, take_config_lock
from tests.support.tart.moments import now_s
from tests.support.tart.program import refuse
from tests.support.tart.vms import Vm, new_mac, same_mac

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tests.support.tart.faults import Desk
    from tests.support.tart.home import Home

DARWIN_MAX = 2
CRASH = "guest has stopped the virtual machine due to error: "
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
_BACKENDS = {
    "process": ("tests.support.tart.process_guest", "ProcessGuest"),
    "qemu": ("tests.support.tart.qemu_guest", "QemuGuest"),
}


def run_(home: Home, desk: Desk, asked: argparse.Namespace) -> None:
    shares = _validated(home, asked)
    vm = home.vm(asked.name)
    # From the lock on a stop may come; before there is a machine it has nothing to switch off.
    signal.signal(signal.SIGINT, lambda _number, _frame: sys.exit(0))
    with folder_lock(home.folder):
        config = _fresh_mac(home, vm)
        lock = take_config_lock(vm.config_path)
        if lock is None:
            raise already_running(asked.name)
        others = _running_darwin(home, vm)
    if config["os"] == "darwin" and len(others) >= DARWIN_MAX:
        raise too_many(others)
    vm.touch()
    with _guest_folder(desk.folder, asked.name) as folder:
        log = desk.folder / f"{asked.name}.guest.log"
        mac = str(config["macAddress"])
        guest = _boot(desk, Machine(vm, mac, shares, folder, log))
        desk.note(
            "boot", vm=asked.name, mac=mac, ecid=config.get("ecid", ""), disk=_identity(vm.disk)
        )
        _say_vnc(asked)
        _watch(home, desk, asked.name, mac, guest)
    os.close(lock)


def _validated(home: Home, asked: argparse.Namespace) -> tuple[Share, ...]:
    if asked.graphics and asked.no_graphics:
        refuse("--graphics and --no-graphics are mutually exclusive")
    networks = (asked.net_bridged, asked.net_softnet, asked.net_host)
    if sum(map(bool, networks)) > 1:
        refuse("--net-bridged, --net-softnet and --net-host are mutually exclusive")
    shares = tuple(_share(text) for text in asked.shares)
    names = [share.name for share in shares]
    if len(shares) > 1 and ("" in names or len(set(names)) < len(names)):
        refuse("each of several directory shares on one tag needs a name of its own")
    try:
        home.open_local(asked.name)
    except TartError as error:  # it is looked for while arguments are checked
        raise TartError(f"Error: {error.text}", 1) from None
    for share in shares:
        if not share.path.is_dir():
            raise TartError(f"Error: no such directory: {share.path}", 1)
    return shares


def _share(text: str) -> Share:
    """Read ``[name:]path[:ro][,tag=T]``; what trails and is no option belongs to the path."""
    text, _, tag = text.partition(",tag=")
    if tag and tag != "com.apple.virtio-fs.automount":
        refuse("only the automount tag is shared here")
    read_only = text.endswith(":ro")
    text = text.removesuffix(":ro")
    name, colon, path = text.partition(":")
    if not colon or name.startswith(("/", "~", ".")):
        name, path = "", text
    if "/" in name:
        refuse(f"the name of a share cannot hold a slash: {name}")
    return Share(name or "shared", Path(path).expanduser(), read_only=read_only)


def _fresh_mac(home: Home, vm: Vm) -> dict[str, object]:
    config = vm.config()
    running = (other for other in home.local() if other.name != vm.name and other.pid())
    if any(same_mac(other.config()["macAddress"], config["macAddress"]) for other in running):
        config["macAddress"] = new_mac()
        vm.save(config)
    return config


def _running_darwin(home: Home, vm: Vm) -> list[str]:
    others = [other for other in home.local() if other.name != vm.name and other.pid()]
    return [other.name for other in others if other.config()["os"] == "darwin"]


@contextlib.contextmanager
def _guest_folder(stand_in: Path, name: str) -> Iterator[Path]:
    folder = guest_folder(stand_in, name)
    if folder.exists():  # of a run that was killed: its VM is not ours
        remove(folder)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        remove(folder)


def _boot(desk: Desk, machine: Machine) -> Guest:
    chosen = desk.folder / "backend"
    kind = chosen.read_text().strip() if chosen.exists() else "process"
    module, name = _BACKENDS[kind]
    guest: Guest = getattr(importlib.import_module(module), name)(machine)
    return guest


def _watch(home: Home, desk: Desk, name: str, mac: str, guest: Guest) -> None:
    """Wait for the guest's end, and do to it what signals and faults say meanwhile."""
    crashed: list[str] = []
    deaf = desk.take("run", name, "deaf")

    def interrupted(_number: int, _frame: object) -> None:
        if deaf is None:
            guest.power_off()

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGUSR2, lambda _number, _frame: guest.ask_to_end())
    timers = [*_lease_timer(home, desk, name, mac), *_ends(desk, name, guest, crashed)]
    for timer in timers:
        timer.daemon = True
        timer.start()
    wrong = guest.wait()
    for timer in timers:
        timer.cancel()
    guest.close()
    crashed += [wrong] if wrong else []
    desk.note("off", vm=name, crashed=crashed[0] if crashed else "")
    if crashed:
        # To stdout, and the exit code stays 0: so it is with tart.
        print(CRASH + crashed[0], flush=True)  # noqa: T201 - this is a program


def _ends(desk: Desk, name: str, guest: Guest, crashed: list[str]) -> Iterator[threading.Timer]:
    """Give the ends that a test ordered."""
    if fault := desk.take("run", name, "crash"):
        text = fault.text or "Internal Virtualization error. The virtual machine stopped."

        def crash() -> None:
            crashed.append(text)
            guest.power_off()

        yield threading.Timer(fault.seconds, crash)
    if fault := desk.take("run", name, "halt"):
        yield threading.Timer(fault.seconds, guest.power_off)


def _lease_timer(home: Home, desk: Desk, name: str, mac: str) -> Iterator[threading.Timer]:
    late = desk.take("run", name, "no_lease")
    if late is not None and not late.seconds:
        return
    now = int(now_s())

    def grant() -> None:
        with contextlib.suppress(TartError):
            leases.grant(home.leases, mac, now)

    yield threading.Timer(late.seconds if late else 0.0, grant)


def _identity(disk: Path) -> str:
    status = disk.stat()
    return f"{status.st_dev}:{status.st_ino}"


def _say_vnc(asked: argparse.Namespace) -> None:
    if not (asked.vnc or asked.vnc_experimental):
        return
    password = "-".join(secrets.choice(_WORDS) for _ in range(4))
    url = f"vnc://:{password}@127.0.0.1:{secrets.randbelow(10_000) + 50_000}"
    shown = asked.no_graphics or "CI" in os.environ
    sys.stdout.write(f"VNC server is running at {url}\n" if shown else f"Opening {url}...\n")
    sys.stdout.flush()
