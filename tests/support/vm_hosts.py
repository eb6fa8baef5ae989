"""
Hosts to try drivers of VMs on: one factory for each driver, all tried by the same suite (tests/contract/vms).

A driver joins by a class that has what ``Host`` asks for, and one entry in ``HOSTS``.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from remuda.adapters.system import SystemClock
from tests.support.memory_vms import Disk, MemoryVms
from tests.support.process_host import process_host
from tests.support.qemu_host import QemuHost
from tests.support.tart.driven import DrivenTart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from remuda.ports.vms import Vms
    from tests.support.qemu_host import BuiltImages
    from tests.support.tart.driven import PushedImage

MEMORY_IMAGE = "registry.example/linux:1"


class Host(Protocol):
    """A host to try a driver on."""

    image: str
    """An image whose guest says that it is ready, if it has a mailbox, and then waits."""

    @property
    def vms(self) -> Vms: ...

    def restarted(self) -> Vms:
        """Return the driver of an agent that was started anew on the same host."""
        ...

    def halt(self, name: str) -> None:
        """Have the guest power itself off; it may take a while."""
        ...

    def fill_disk(self) -> None:
        """Have what writes much to the disk next find it full."""
        ...


@dataclass
class MemoryHost:
    """A host without a host."""

    folder: Path
    image: str = MEMORY_IMAGE
    disk: Disk = field(default_factory=lambda: Disk(registry={MEMORY_IMAGE: 100}, free_bytes=1000))

    def __post_init__(self) -> None:
        self.vms = self.restarted()

    def restarted(self) -> MemoryVms:
        return MemoryVms(self.disk, self.folder, SystemClock())

    def halt(self, name: str) -> None:
        self.restarted().halt(name)

    def fill_disk(self) -> None:
        self.disk.free_bytes = 0


@contextlib.contextmanager
def memory_host(folder: Path, _: Callable[[str], Any]) -> Iterator[Host]:
    yield MemoryHost(folder)


@contextlib.contextmanager
def tart_host(folder: Path, fixture: Callable[[str], Any]) -> Iterator[Host]:
    pushed: PushedImage = fixture("pushed")
    host = DrivenTart(folder, pushed.by_digest)
    try:
        yield host
    finally:
        host.close()


@contextlib.contextmanager
def qemu_host(folder: Path, fixture: Callable[[str], Any]) -> Iterator[Host]:
    built: BuiltImages = fixture("built")
    host = QemuHost(folder, built.folder, built.image)
    try:
        yield host
    finally:
        host.close()


HOSTS: dict[str, Callable[[Path, Callable[[str], Any]], AbstractContextManager[Host]]] = {
    "memory": memory_host,
    "process": process_host,
    "qemu": qemu_host,
    "tart": tart_host,
}
"""By driver. Each is given a folder of its own, and a way to ask for a fixture that only it needs."""
