"""A host with QEMU, to try its driver on: real guests, emulated, with Debian's kernel."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.adapters import detached
from remuda.adapters.qemu.driver import QemuSettings, QemuVms
from remuda.adapters.qemu.machine import Network
from remuda.adapters.system import SystemClock, SystemIds
from remuda.agent.mailbox import HostMailbox
from remuda.agent.settings import Deadlines
from tests.support.eventually import eventually
from tests.support.image_parts import built_image_or_skip
from tests.support.tart.moments import now_s, pause

if TYPE_CHECKING:
    from remuda.agent.mailbox import Signs

IMAGE = "runners.example/linux:1"
SLOW_S = 180.0
"""A guest boots in three seconds, and in thirty where eight others boot beside it."""


@dataclass(frozen=True)
class BuiltImages:
    """Images that are built once for many tests."""

    folder: Path
    image: str


def built_images_or_skip(folder: Path) -> BuiltImages:
    return BuiltImages(folder, built_image_or_skip(folder, IMAGE))


@dataclass
class QemuHost:
    """A host whose VMs end with it."""

    folder: Path
    images: Path
    image: str
    network: Network = Network.RESTRICTED

    def __post_init__(self) -> None:
        self.vms = self.restarted()

    def restarted(self, *, network: Network | None = None) -> QemuVms:
        settings = QemuSettings(
            folder=self.folder / "qemu",
            images=self.images,
            deadlines=Deadlines(),
            accel="tcg",
            network=network or self.network,
            vms_max=2,
        )
        return QemuVms(settings, clock=SystemClock(), ids=SystemIds())

    def halt(self, name: str) -> None:
        self.mailbox(name).put_stop()

    def fill_disk(self) -> None:
        raise AssertionError("it pulls nothing")

    def mailbox(self, name: str) -> HostMailbox:
        return HostMailbox(self.vms.mailbox(name))

    def run_folders(self) -> list[Path]:
        return sorted((self.folder / "qemu" / "vms").glob("*/run"))

    async def shown(self, name: str, sign: str) -> Signs:
        """Wait until the guest shows a sign (``ready``, ``exit``); fail with its console's words."""

        async def look() -> Signs:
            seen = await self.vms.observe(name)
            signs = self.mailbox(name).look()
            there = getattr(signs, sign)
            running = seen is not None and seen.power == "running"
            assert there or running, self.vms.log_file(name).read_text(errors="replace")[-2000:]
            return signs

        return await eventually(look, lambda signs: bool(getattr(signs, sign)), within_s=SLOW_S)

    def close(self) -> None:
        """End whatever still runs, and wait for that."""
        for run in self.run_folders():
            deadline = now_s() + SLOW_S
            while isinstance(detached.look(run), detached.Alive) and now_s() < deadline:
                detached.send(run, signal.SIGKILL)
                pause(0.02)

    def processes(self, name: str) -> dict[str, int]:
        """Return the keeper and the QEMU of a VM, by its group."""
        found = detached.look(self.folder / "qemu" / "vms" / name / "run")
        assert isinstance(found, detached.Alive)
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        ours = {number: _words(number) for number in numbers if _group(number) == found.pid}
        return {
            role: next(number for number, words in ours.items() if begins(words))
            for role, begins in (("keeper", _is_keeper), ("qemu", _is_qemu))
        }


def lives(pid: int) -> bool:
    """Say whether a process is there and has not ended. Who has ended may wait long for somebody to take note."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def _is_keeper(words: list[str]) -> bool:
    return "remuda.adapters.qemu.relay" in words and not words[0].endswith("sh")


def _is_qemu(words: list[str]) -> bool:
    return words[0].endswith("qemu-system-x86_64")


def _words(pid: int) -> list[str]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return [""]


def _group(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        return os.getpgid(pid)
    return None
