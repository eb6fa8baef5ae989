"""
Machines of a provider that rents Macs: seen, renamed, rebooted, installed anew. Never ordered, never cancelled.

A machine's name is the only thing of it that we may write, so the name is the claim (``remuda.hosts.decide.adoption``).
Errors are typed by what the caller must do next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from remuda.model.errors import RemudaError, Retry

if TYPE_CHECKING:
    from datetime import datetime

    from remuda.model.secret import Secret

READY = "ready"
"""The state of a machine that is up and that nobody works on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An operating system that the provider installs."""

    id: str
    name: str
    """Such as ``macos-sequoia-15.6``."""
    family: str = ""
    version: str = ""
    beta: bool = False
    types: tuple[str, ...] = ()
    """The types of machines that it can be installed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine, as the provider tells of it."""

    id: str
    name: str
    zone: str
    type: str
    address: str = ""
    state: str = READY
    delivered: bool = True
    """Whether it is ours to use: one that was only just ordered is not."""
    leaving: bool = False
    """Whether its contract has been cancelled."""
    image: Image | None = None
    changed_at: datetime | None = None
    user: str = ""
    password: Secret | None = field(default=None, repr=False)
    """The account's, if the provider tells it. What it shows in place of one that it hides is none."""


class MachinesError(RemudaError):
    """The provider did not do what was asked; whether it will is unknown. Look again later."""


class MachineGone(MachinesError):
    """There is no such machine (any more)."""


class MachinesRefused(MachinesError):
    """We are not who we should be, or may not do this. A person must look; nothing is tried in a hurry."""

    retry = Retry.NEVER


class MachinesThrottled(MachinesError):
    """Too much at once. Wait ``retry_after_s`` first."""

    def __init__(self, what: str, *, why: str, fix: str, retry_after_s: float = 30.0) -> None:
        super().__init__(what, why=why, fix=fix)
        self.retry_after_s = retry_after_s


class MachineBusy(MachinesError):
    """The machine is in the middle of something (it is installed, rebooted, locked). Nothing was changed."""


class MachinesUnavailable(MachinesError):
    """No answer, or a fault of the provider's; whether the request was carried out is unknown."""


class Machines(Protocol):
    """The machines of one account. Every call ends in time; every error is a ``MachinesError``."""

    async def list(self, zone: str) -> tuple[Machine, ...]:
        """Return all machines of a zone, in the order of their ids."""
        ...

    async def get(self, zone: str, machine: str) -> Machine: ...

    async def rename(self, zone: str, machine: str, name: str) -> Machine: ...

    async def reboot(self, zone: str, machine: str) -> None: ...

    async def reinstall(self, zone: str, machine: str, image: str) -> None:
        """Wipe the machine and install an image, by its id."""
        ...

    async def images(self, zone: str, type: str) -> tuple[Image, ...]:  # noqa: A002 - the provider's own word
        """Return what can be installed on a type of machines now."""
        ...
