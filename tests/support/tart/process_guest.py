"""
A guest that is a process: the text at the start of disk.img is its program.

It has no isolation, and ``ro`` of a share is only told to it, not enforced. It has a group of its own, which ends with
the program that runs it, however that ends. Exit code 0 is a halt; any other is a crash.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tart.guests import Machine

_PROGRAM_MAX_BYTES = 1024 * 1024
_IDLE = b"#!/bin/sh\nwhile :; do sleep 3600; done\n"
KEEPER = 'read _; kill -KILL "-$1"'
"""Waits for the end of a pipe whose other end only the running program holds."""


class ProcessGuest:
    """Booted as soon as it is made."""

    def __init__(self, machine: Machine) -> None:
        program = machine.folder / "boot"
        program.write_bytes(boot_program(machine.vm.disk) or _IDLE)
        program.chmod(0o700)
        shares = machine.folder / "My Shared Files"
        shares.mkdir()
        for share in machine.shares:
            (shares / share.name).symlink_to(share.path)
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(machine.folder),
            "GUEST_SHARES": str(shares),
            "GUEST_DISK": str(machine.vm.disk),
            "GUEST_READ_ONLY": ":".join(s.name for s in machine.shares if s.read_only),
        }
        with machine.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the test's own guest
                [str(program)],
                cwd=machine.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._off = False
        self._keeper = subprocess.Popen(  # noqa: S603 - fixed words and a number
            ["/bin/sh", "-c", KEEPER, "keeper", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> str:
        code = self._process.wait()
        self._signal(signal.SIGKILL)  # what it left running has no machine any more
        return "" if self._off or code == 0 else f"the guest ended with {code}"

    def power_off(self) -> None:
        self._off = True
        self._signal(signal.SIGKILL)

    def ask_to_end(self) -> None:
        self._signal(signal.SIGTERM)

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.wait()
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def boot_program(path: Path) -> bytes:
    """Return the program at the start of a disk; empty if there is none, and then the machine just stands there."""
    with path.open("rb") as disk:
        program = disk.read(_PROGRAM_MAX_BYTES).partition(b"\0")[0]
    return program if program.startswith(b"#!") else b""


def bootable(program: str, disk_bytes: int = 1024 * 1024) -> bytes:
    """Return the start of a disk that boots a program."""
    raw = program.encode()
    if not program.startswith("#!") or b"\0" in raw or len(raw) >= disk_bytes:
        raise BadInput("No disk was made", why="it is no script", fix="Begin it with #!")
    return raw + b"\0"
