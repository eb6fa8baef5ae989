"""``remuda down``: ends the ``remuda up`` of this machine, and whatever a killed one left."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from remuda.adapters.system import SystemClock
from remuda.cli.tree import vms
from remuda.cli.tree.folder import data_folder, held, holder
from remuda.cli.tree.parts import STOPPED, Layout
from remuda.cli.tree.runs import Run
from remuda.cli.tree.supervisor import shut_down
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from remuda.cli.tree.folder import Folder

_PATIENCE_S: Final = 180.0
"""More than all graces of its parts together."""
_POLL_S: Final = 0.1


class NotDown(RemudaError):
    """It does not end."""


@click.command(epilog="Exit codes: 0 nothing runs any more, 1 failed, 2 usage.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The data folder of the remuda up that is meant. Variable: REMUDA_DATA.",
)
@click.option(
    "--end-jobs",
    is_flag=True,
    help="End VMs in which jobs run, too. Those jobs are lost.",
)
def down(data: Path | None, *, end_jobs: bool) -> None:
    """
    End the remuda up of this machine, in order. If nothing runs, nothing is done.

    Runners without a job end. A job that runs goes on in its VM without any of our processes, and the next remuda up
    takes it up, its log and its end included; queued jobs stay queued. With --end-jobs nothing is left running.

    \b
    Examples:
      remuda down
      remuda down --data ./fleet --end-jobs
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    folder = data_folder(data)
    asyncio.run(_down(folder, end_jobs=end_jobs))


async def _down(folder: Folder, *, end_jobs: bool) -> None:
    was_up = await _end_supervisor(folder)
    kept = folder.kept() if folder.kept_file.exists() else None
    if kept is None:
        click.echo("It is down." if was_up else f"Nothing runs in {folder.root}.")
        return
    layout = Layout(folder, kept)
    with held(folder):  # nobody may begin meanwhile
        if any(Run(folder, name).is_alive for name in STOPPED):
            was_up = True
            await shut_down(layout, SystemClock())
        left = await vms.left_running(folder, kept)
        if left and end_jobs:
            await vms.end(folder, kept, left)
    click.echo("It is down." if was_up else f"Nothing runs in {folder.root}.")
    if left and end_jobs:
        click.echo(f"{_vms(len(left))} ended, with what ran there.")
    elif left:
        click.echo(
            f"{_vms(len(left))} with jobs go on: the next remuda up takes them up, remuda down --end-jobs ends them."
        )


async def _end_supervisor(folder: Folder) -> bool:
    """Ask the one that tends the tree to end, and wait; True: there was one."""
    pid = holder(folder)
    if pid is None:
        return False
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    if pid:
        # Whoever holds the lock wrote its pid into it, so the pid is no stranger's while the lock is held.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while (now := holder(folder)) is not None:
        if asyncio.get_running_loop().time() > deadline:
            raise NotDown(
                f"Process {now or pid} does not end",
                why=f"it was asked to {_PATIENCE_S:.0f} s ago",
                fix=f"See {folder.log('up')}; after kill -9 {now or pid}, remuda down ends the rest",
            )
        await asyncio.sleep(_POLL_S)
    return True


def _vms(number: int) -> str:
    return "1 VM" if number == 1 else f"{number} VMs"
