"""
What the operator asks of whoever changes hosts: make this one as wanted, or say why not.

It is a Protocol, so that the simulator can play hosts; over SSH it is ``remuda.hosts.over_ssh``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from remuda.hosts.decide.wanted import OwnConfig
    from remuda.kube.host import Role
    from remuda.model.secret import Secret
    from remuda.ports.host_shell import Target

Pin = Callable[[str], Awaitable[None]]
"""Told the host key that was shown, before anything is sent to the host."""
Mint = Callable[[], Awaitable["Secret"]]
"""Asked for a registration token of a builder, if and when one is needed."""


Emptied = Callable[[], Awaitable[bool]]
"""Asked right before each thing that could end VMs whether there is none and none can come."""


class Mode(StrEnum):
    """Which parts of a host are looked at."""

    FIRST = "first"
    """All of them."""
    DRIFT = "drift"
    """Those that are in the configuration's hash."""


class Result(StrEnum):
    CONVERGED = "converged"
    """Everything was looked at afterwards and found in place."""
    NEEDS_DRAIN = "needs-drain"
    """What is left to do could end VMs. It was not begun."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a host."""

    result: Result
    changed: tuple[str, ...] = ()
    """The steps that were taken."""
    left: tuple[str, ...] = ()
    """The steps that wait for the host to be empty."""


class Converger(Protocol):
    """Changes hosts. Holds the fleet's configuration."""

    @property
    def config_hash(self) -> str:
        """What every host of the fleet should have."""
        ...

    async def converge(
        self,
        target: Target,
        own: OwnConfig,
        mode: Mode,
        *,
        emptied: Emptied,
        pin: Pin,
        mint: Mint | None,
    ) -> Outcome:
        """Make a host as wanted. Raises a RemudaError if it is not so in the end."""
        ...

    async def retire(self, target: Target, role: Role) -> None:
        """
        Take the agent off a host that leaves the fleet, and off a builder GitHub's runner too.

        Raises ``HostInUse`` if that would end a job, and another RemudaError if they are still there.
        """
        ...

    async def refuse_in_use(self, target: Target, pin: Pin, what: str) -> None:
        """
        Ask a host what runs on it, before all of that is ended by others than us.

        Raises ``HostInUse``, which says what was not done, and another RemudaError if the host cannot be asked.
        """
        ...

    async def reboot(self, target: Target, pin: Pin) -> None:
        """Have a host start again. The caller has seen to it that it is empty."""
        ...
