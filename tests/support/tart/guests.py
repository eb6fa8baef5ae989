"""
What runs inside a VM. Each kind of guest boots from disk.img, sees the shares, and ends by itself or by force.

Which kind is used is said by ``backend`` in the stand-in's folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tart.vms import Vm


@dataclass(frozen=True, slots=True)
class Share:
    """A folder of the host that the guest sees under a name."""

    name: str
    path: Path
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """What is to be booted."""

    vm: Vm
    mac: str
    shares: tuple[Share, ...]
    folder: Path
    """A folder of the guest's own, new for each boot."""
    log: Path
    """What the guest prints."""


class Guest(Protocol):
    """A machine that runs."""

    @property
    def pid(self) -> int: ...

    def wait(self) -> str:
        """Wait for its end. Returns what went wrong in it; empty if it was halted or powered off."""
        ...

    def power_off(self) -> None:
        """Pull the plug."""
        ...

    def ask_to_end(self) -> None:
        """Press the power button."""
        ...

    def close(self) -> None:
        """Give back what is held for it."""
        ...


def guest_folder(stand_in: Path, name: str) -> Path:
    return stand_in / "guests" / name
