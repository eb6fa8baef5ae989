"""The driver of Tart on a stand-in of its own: a host to try it on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.adapters.detached import Alive, look
from remuda.adapters.system import SystemClock, SystemIds
from remuda.adapters.tart import TartSettings, TartVms
from remuda.agent.settings import Deadlines
from remuda.ports.vms import golden_name
from tests.support.processes import pause, seconds
from tests.support.tart.faults import Fault
from tests.support.tart.installed import StandIn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.docker_registry import DockerRegistry

GUEST = """\
#!/bin/sh
[ ! -d "$GUEST_SHARES/mailbox" ] || : > "$GUEST_SHARES/mailbox/ready"
while [ ! -e halt ]; do sleep 0.1; done
"""
"""Says that it is ready, and halts when told."""
AMPLE = Deadlines(get=60, list=60, delete=60, exec=60)
"""For tests in which nothing hangs: a busy machine must not look like one that does."""
CLOSE_S = 30.0


@dataclass(frozen=True, slots=True)
class PushedImage:
    """An image in a registry."""

    by_tag: str
    by_digest: str


def pushed_image(folder: Path, registry: DockerRegistry, program: str = GUEST) -> PushedImage:
    """Push a small image that boots a program."""
    builder = StandIn(folder / "builder")
    vm = builder.make("source", program, disk_bytes=3_000_000)
    with vm.disk.open("r+b") as disk:
        disk.seek(1_000_000)
        disk.write(os.urandom(500_000))
    by_tag = f"{registry.host}/tests/{folder.name.lower()}:1"
    answer = builder.call("push", "source", by_tag, "--insecure", "--populate-cache")
    assert answer.returncode == 0, answer.stderr
    by_digest = next(name for name in builder.listed("--source", "oci") if "@" in name)
    return PushedImage(by_tag, by_digest)


@dataclass
class DrivenTart:
    """A stand-in, and a driver for it."""

    folder: Path
    image: str = ""
    """One that can be pulled."""
    settle_s: float = 2.0
    deadlines: Deadlines = AMPLE
    tart: StandIn = field(init=False)
    vms: TartVms = field(init=False)

    def __post_init__(self) -> None:
        self.tart = StandIn(self.folder / "tart")
        self.vms = self.restarted()

    @property
    def settings(self) -> TartSettings:
        return TartSettings(
            folder=self.folder / "runs",
            env={**os.environ, **self.tart.env()},
            deadlines=self.deadlines,
            program=str(self.tart.program),
            insecure=True,
            settle_s=self.settle_s,
        )

    def restarted(self) -> TartVms:
        return TartVms(self.settings, clock=SystemClock(), ids=SystemIds())

    async def make(self, name: str, program: str = GUEST, *, os_name: str = "darwin") -> None:
        """Make a VM with a mailbox, as if it had been cloned from a golden of that program."""
        await asyncio.to_thread(self.tart.make, name, program, os_name=os_name)
        self.vms.mailbox(name).mkdir(parents=True)

    def halt(self, name: str) -> None:
        """Have the guest power itself off."""
        (self.tart.desk.folder / "guests" / name / "halt").touch()

    def fill_disk(self) -> None:
        """Have the next pull and the next clone find the disk full."""
        self.tart.order(Fault(verb="pull", kind="no_space"), Fault(verb="clone", kind="no_space"))

    def close(self) -> None:
        """End every VM that the driver ran, and whatever the stand-in started."""
        for run in (self.folder / "runs").glob("*/run"):
            deadline = seconds() + CLOSE_S
            while isinstance(alive := look(run), Alive) and seconds() < deadline:
                if alive.pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(alive.pid, signal.SIGKILL)
                pause(0.02)
        self.tart.close()

    @property
    def golden(self) -> str:
        return golden_name(self.image)
