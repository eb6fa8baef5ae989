"""Which program runs the VMs of this host: the one place that knows all drivers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.adapters.process.vms import ProcessSettings, ProcessVms
from remuda.adapters.qemu.driver import QemuSettings, QemuVms
from remuda.adapters.qemu.machine import Network
from remuda.adapters.tart import TartSettings, TartVms

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.agent.settings import Deadlines
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.vms import Vms


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """What the drivers are told."""

    name: str
    """tart, qemu or process."""
    folder: Path
    """The agent's data folder; each driver has a part of it."""
    deadlines: Deadlines
    images: Path
    insecure_registry: bool
    tart_program: str
    softnet: bool
    qemu_accel: str
    qemu_network: str


@dataclass(frozen=True, slots=True)
class Driver:
    """One that was made."""

    vms: Vms
    folders: tuple[Path, ...]
    """Where its disks and images are."""


def driver(settings: DriverSettings, clock: Clock, ids: Ids) -> Driver:
    """Make the driver; nothing is started or looked at."""
    folder = settings.folder / settings.name
    match settings.name:
        case "tart":
            told = TartSettings(
                folder=folder,
                env=os.environ,
                deadlines=settings.deadlines,
                program=settings.tart_program,
                softnet=settings.softnet,
                insecure=settings.insecure_registry,
            )
            return Driver(TartVms(told, clock=clock, ids=ids), (folder, told.home))
        case "qemu":
            machine = QemuSettings(
                folder=folder,
                images=settings.images,
                deadlines=settings.deadlines,
                accel=settings.qemu_accel,
                network=Network(settings.qemu_network),
            )
            return Driver(QemuVms(machine, clock=clock, ids=ids), (folder, settings.images))
        case "process":
            plain = ProcessSettings(
                folder=folder, images=settings.images, deadlines=settings.deadlines
            )
            return Driver(ProcessVms(plain, clock), (folder, settings.images))
        case name:
            raise AssertionError(f"there is no driver {name}")
