"""The VMs that go on when a tree has stopped: counted, and ended where a person wants that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from remuda.adapters.system import SystemClock, SystemIds
from remuda.agent.settings import Deadlines
from remuda.cli.drivers import DriverSettings, driver
from remuda.ports.vms import NotThere, Power, vm_name

if TYPE_CHECKING:
    from remuda.cli.tree.folder import Folder, Kept
    from remuda.ports.vms import Vms

_GRACE_S: Final = 5.0


async def left_running(folder: Folder, kept: Kept) -> tuple[str, ...]:
    """Return the names of the agent's VMs that run: those that its own records name, and no others."""
    records = sorted((folder.agent / "records" / "vms").glob("*.json"))
    if not records:
        return ()
    ours = {vm_name(record.stem) for record in records}
    seen = await _vms(folder, kept).inventory()
    return tuple(vm.name for vm in seen.vms if vm.name in ours and vm.power is Power.RUNNING)


async def end(folder: Folder, kept: Kept, names: tuple[str, ...]) -> None:
    """End VMs, with the jobs in them. The next ``remuda up`` finds them ended and says so of their jobs."""
    vms = _vms(folder, kept)
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_end(vms, name), name=f"end {name}")


async def _end(vms: Vms, name: str) -> None:
    try:
        await vms.stop(name, grace_s=_GRACE_S)
    except NotThere:
        return


def _vms(folder: Folder, kept: Kept) -> Vms:
    settings = DriverSettings(
        name=kept.driver,
        folder=folder.agent,
        deadlines=Deadlines(),
        images=folder.images,
        insecure_registry=False,
        tart_program="tart",
        softnet=False,
        qemu_accel="auto",
        qemu_network="restricted",
    )
    return driver(settings, SystemClock(), SystemIds()).vms
