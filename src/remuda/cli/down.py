"""``remuda down``: ends the ``remuda up`` of this machine, and whatever a killed one left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from remuda.adapters.system import SystemClock
from remuda.cli.progress import Screen, shown
from remuda.cli.tree import vms
from remuda.cli.tree.folder import data_folder, held, holder
from remuda.cli.tree.parts import STOPPED
from remuda.cli.tree.progress import ending
from remuda.cli.tree.runs import Run
from remuda.cli.tree.supervisor import shut_down
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from remuda.cli.tree.folder import Folder, Kept

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
    clock, screen = SystemClock(), Screen(sys.stderr)
    async with shown(screen, clock, lambda: ending(folder)):
        was_up = await _end_supervisor(folder)
    if not folder.lock.exists():
        click.echo(f"Nothing runs in {folder.root}.")
        return
    with held(folder):  # nobody may begin meanwhile
        if any(Run(folder, name).is_alive for name in STOPPED):
            was_up = True
            async with shown(screen, clock, lambda: ending(folder)):
                await shut_down(folder, clock)
        click.echo("It is down." if was_up else f"Nothing runs in {folder.root}.")
        if (kept := folder.kept()) is not None:
            await _see_to_vms(folder, kept, end_jobs=end_jobs)


async def _see_to_vms(folder: Folder, kept: Kept, *, end_jobs: bool) -> None:
    left = await vms.left_running(folder, kept)
    if not left:
        return
    number = "1 VM" if len(left) == 1 else f"{len(left)} VMs"
    if end_jobs:
        await vms.end(folder, kept, left)
        click.echo(f"{number} ended, with what ran there.")
    else:
        click.echo(
            f"{number} with a job left running: the next remuda up takes it up, remuda down --end-jobs ends it."
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
