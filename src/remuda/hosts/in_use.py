"""Asks a host what runs on it, at the moment before something could end that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.hosts.decide.in_use import BUILDS, VMS
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from remuda.ports.host_shell import HostShell


class HostInUse(RemudaError):
    """Something runs on the host that no Pod stands for. That is no fault of the host: it is asked again later."""


async def what_runs(shell: HostShell) -> tuple[str, ...]:
    """Return what a harmful step would end. Raises ``FactUnreadable`` if that cannot be told."""
    vms = VMS.parse(await shell.run(VMS.command))
    return (*vms, *BUILDS.parse(await shell.run(BUILDS.command)))
