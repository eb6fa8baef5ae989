"""
A guest that is a real machine: QEMU without acceleration, Debian's kernel, and the program at the start of disk.img.

It sees its shares through virtiofs under their names (``ro`` is how it mounts them; the host does not enforce it), and
has no network. A program that ends with 0 powers the machine off; any other end is a panic, and so told from a halt.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from typing import IO, TYPE_CHECKING

from tests.support.tart.moments import now_s, pause
from tests.support.tart.process_guest import KEEPER, boot_program

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tart.guests import Machine, Share

VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
MEMORY_MB = 192
_LISTEN_S = 20.0
_APPEND = (
    "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check cryptomgr.notests "
    "tsc=reliable random.trust_cpu=on"
)


class QemuGuest:
    """Booted as soon as it is made."""

    def __init__(self, machine: Machine) -> None:
        parts = machine.folder.parents[1]
        self._group = 0
        self._sharing = [
            self._share(machine, number, share) for number, share in enumerate(machine.shares)
        ]
        command = [
            *("qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot"),
            *("-machine", "pc", "-accel", "tcg,tb-size=32", "-qmp", "stdio"),
            *("-m", str(MEMORY_MB), "-nic", "none", "-serial", f"file:{machine.log}"),
            *("-kernel", str(parts / "kernel"), "-initrd", str(parts / "initrd")),
            *("-append", f"{_APPEND} {_told(machine)}"),
            *("-drive", f"file={machine.vm.disk},format=raw,if=virtio"),
            *_memory(machine),
        ]
        self._qemu = subprocess.Popen(  # noqa: S603 - fixed words and the test's own paths
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=self._group,
        )
        self._group = self._group or self._qemu.pid
        self._off = False
        self._keeper = subprocess.Popen(  # noqa: S603 - fixed words and a number
            ["/bin/sh", "-c", KEEPER, "keeper", str(self._group)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._say("qmp_capabilities")

    @property
    def pid(self) -> int:
        return self._qemu.pid

    def wait(self) -> str:
        reason = ""
        for line in _pipe(self._qemu.stdout):
            message = json.loads(line)
            if message.get("event") == "SHUTDOWN":
                reason = message["data"]["reason"]
        code = self._qemu.wait()
        complaint = _pipe(self._qemu.stderr).read().decode(errors="replace").strip()
        if self._off or reason == "guest-shutdown":
            return ""
        return f"{reason or 'it ended'} {code} {complaint[-300:]}".strip()

    def power_off(self) -> None:
        self._off = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)

    def ask_to_end(self) -> None:
        self._say("system_powerdown")

    def close(self) -> None:
        self.power_off()
        for process in (self._keeper, self._qemu, *self._sharing):
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def _share(self, machine: Machine, number: int, share: Share) -> subprocess.Popen[bytes]:
        """Serve one share, and return when it can be connected to."""
        socket = machine.folder / f"share{number}"
        with machine.log.with_suffix(".shares").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - fixed words and the test's own paths
                [
                    VIRTIOFSD,
                    *(f"--socket-path={socket}", "-o", f"source={share.path}"),
                    *("-o", "sandbox=chroot", "-o", "cache=none"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self._group,
            )
        self._group = self._group or process.pid
        deadline = now_s() + _LISTEN_S
        while not socket.exists() and process.poll() is None and now_s() < deadline:
            pause(0.02)
        return process

    def _say(self, command: str) -> None:
        with contextlib.suppress(OSError):
            stream = _pipe(self._qemu.stdin)
            stream.write(json.dumps({"execute": command}).encode() + b"\n")
            stream.flush()


def _told(machine: Machine) -> str:
    """Return what the kernel's command line tells the guest's init."""
    length = len(boot_program(machine.vm.disk))
    shares = ",".join(f"{s.name}:{'ro' if s.read_only else 'rw'}" for s in machine.shares)
    return f"guest.program={length} guest.shares={shares}"


def _memory(machine: Machine) -> list[str]:
    if not machine.shares:
        return []
    words = ["-object", f"memory-backend-memfd,id=mem,size={MEMORY_MB}M,share=on"]
    words += ["-numa", "node,memdev=mem"]
    for number in range(len(machine.shares)):
        socket = machine.folder / f"share{number}"
        words += ["-chardev", f"socket,id=c{number},path={socket}"]
        words += ["-device", f"vhost-user-fs-pci,chardev=c{number},tag=share{number}"]
    return words


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "all three are pipes"
    return stream


def parts_in(folder: Path) -> tuple[Path, Path]:
    """Return where the kernel and the initrd are looked for."""
    return folder / "kernel", folder / "initrd"
