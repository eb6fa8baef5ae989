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
        for run in self.run_folders():
            if isinstance(detached.look(run), detached.Alive):
                detached.send(run, signal.SIGKILL)

    def pids(self, name: str) -> list[int]:
        """Return the processes of a VM's group: the shell, the keeper and QEMU."""
        run = self.folder / "qemu" / "vms" / name / "run"
        found = detached.look(run)
        assert isinstance(found, detached.Alive)
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return sorted(number for number in numbers if _group(number) == found.pid)


def _group(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        return os.getpgid(pid)
    return None
