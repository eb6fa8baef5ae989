"""
The last resort of the demo: kills what is left of its fleet, and nothing else.

What is killed is known by a lock that it holds in the fleet's own folder, or was started by the demo itself. A number
that stands in a file alone proves nothing: it may be somebody else's by now.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from remuda.adapters import detached
from remuda.adapters.postgres.home import Home, server_state
from remuda.adapters.process.leftovers import kill_leftovers
from remuda.cli.tree.parts import STOPPED

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.cli.tree.folder import Folder
    from remuda.ports.clock import Clock

_KILL_S: Final = 20.0
_ROUNDS_MAX: Final = 5
_POSTGRES_S: Final = 60.0
"""So long PostgreSQL may take to end by itself once its server is gone."""
_POLL_S: Final = 0.1


async def kill_all(folder: Folder, clock: Clock) -> tuple[str, ...]:
    """Kill the parts and the VMs of a fleet that nobody tends any more; returns the names of what was still there."""
    killed = [name for name in STOPPED if await _kill(folder.part(name))]
    vms = folder.agent / "process" / "vms"
    there = sorted(vms.iterdir()) if vms.is_dir() else []
    killed += [vm.name for vm in there if await _kill_vm(vm)]
    if await _end_postgres(Home(folder.postgres), clock):
        killed.append("postgres")
    return tuple(killed)


async def _kill(place: Path) -> bool:
    """Kill one program and what it started; True: there was one."""
    if not isinstance(detached.look(place), detached.Alive):
        return False
    await detached.kill(place, within_s=_KILL_S)
    return True


async def _kill_vm(vm: Path) -> bool:
    found = await _kill(vm / "run")
    for _ in range(_ROUNDS_MAX):  # what a job starts meanwhile is found the next time
        if not await asyncio.to_thread(kill_leftovers, vm):
            break
        found = True
    return found


async def _end_postgres(home: Home, clock: Clock) -> bool:
    """Wait until PostgreSQL has ended, which it does without its server; True: it had to be told."""
    deadline = clock.monotonic() + _POSTGRES_S
    while _is_held(home.lock):
        if clock.monotonic() > deadline:
            return await _tell_postgres(home, clock)
        await clock.sleep(_POLL_S)
    return False


async def _tell_postgres(home: Home, clock: Clock) -> bool:
    for number in (
        signal.SIGQUIT,
        signal.SIGKILL,
    ):  # at once, as after a crash; then without a word
        deadline = clock.monotonic() + _KILL_S
        while _is_held(home.lock) and clock.monotonic() < deadline:
            pid, _ = server_state(home)
            with suppress(ProcessLookupError, PermissionError):
                if pid is not None and pid > 1:
                    os.kill(pid, number)
            await clock.sleep(_POLL_S)
    return True


def _is_held(lock: Path) -> bool:
    """Say whether the server of a database, or who started it, lives: both hold its lock."""
    try:
        file = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)
