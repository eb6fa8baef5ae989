"""Which program runs the VMs of this host: the one place that knows all drivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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


def driver(settings: DriverSettings, clock: Clock, ids: Ids) -> Vms:
    """Make the driver; nothing is started or looked at. Raises BadInput."""
    raise NotImplementedError
