"""A host whose VMs are plain processes, to try their driver on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remuda.adapters import detached
from remuda.adapters.process.leftovers import kill_leftovers, leftovers
from remuda.adapters.process.vms import ProcessSettings, ProcessVms
from remuda.adapters.system import SystemClock
from remuda.agent.mailbox import HostMailbox
from remuda.ports.vms import Power, golden_name
from tests.support.eventually import eventually
from tests.support.processes import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from remuda.agent.mailbox import Signs

IMAGE = "runners.example/plain:1"
SLOW_S = 60.0


@dataclass
class ProcessHost:
    """A host whose guests end with it."""

    folder: Path
    image: str = IMAGE
    guest: Path | None = None
    guest_env: dict[str, str] = field(default_factory=lambda: {"REMUDA_NAP_SECONDS": "0.05"})

    def __post_init__(self) -> None:
        tools = self.folder / "images" / IMAGE
        tools.mkdir(parents=True)
        (tools / "tool").write_text("of the image")
        self.vms = self.restarted()

    def restarted(self) -> ProcessVms:
        settings = ProcessSettings(
            folder=self.folder / "process",
            images=self.folder / "images",
            guest=self.guest,
            guest_env=self.guest_env,
        )
        return ProcessVms(settings, SystemClock())

    def halt(self, name: str) -> None:
        self.mailbox(name).put_stop()

    def fill_disk(self) -> None:
        raise AssertionError("it pulls nothing")

    def mailbox(self, name: str) -> HostMailbox:
        return HostMailbox(self.vms.mailbox(name))

    def place(self, name: str) -> Path:
        """Return the directory of a guest."""
        return (self.folder / "process" / "vms" / name).resolve()

    async def started(self, name: str) -> None:
        """Make a guest and wait until it is ready."""
        golden = golden_name(self.image)
        if await self.vms.observe(golden) is None:
            await self.vms.pull(self.image, lambda _: None)
            await self.vms.make_golden(self.image, golden)
        await self.vms.clone(golden, name)
        self.mailbox(name).make()
        await self.vms.run(name)
        await self.shown(name, "ready")

    async def shown(self, name: str, sign: str) -> Signs:
        """Wait until the guest shows a sign (``ready``, ``exit``)."""

        async def look() -> Signs:
            return self.mailbox(name).look()

        return await eventually(look, lambda signs: bool(getattr(signs, sign)), within_s=SLOW_S)

    async def off(self, name: str) -> None:
        """Wait until the guest has ended by itself."""

        async def power() -> Power | None:
            seen = await self.vms.observe(name)
            return seen.power if seen else None

        await eventually(power, lambda seen: seen is Power.STOPPED, within_s=SLOW_S)

    def close(self) -> None:
        for run in (self.folder / "process" / "vms").glob("*/run"):
            place = run.parent.resolve()
            while isinstance(detached.look(run), detached.Alive) or leftovers(place):
                kill_leftovers(place)
                pause(0.02)


@contextlib.contextmanager
def process_host(folder: Path, _: Callable[[str], Any]) -> Iterator[ProcessHost]:
    host = ProcessHost(folder)
    try:
        yield host
    finally:
        host.close()
