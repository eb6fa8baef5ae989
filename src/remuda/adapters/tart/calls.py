"""
Calls of ``tart``, each marked for as long as it runs, so that an agent can end what the one before it left.

An agent that is killed takes nobody with it: its clone goes on, nobody looks at its deadline, and when it is done it
replaces whatever bears the name by then. So each call holds the lock of a file of its own, as its standard input, and
has written its pid beside it. Before the first call, whatever holds such a lock is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
from typing import TYPE_CHECKING, Final

from remuda.adapters.commands import Finished, command, streamed
from remuda.ports.vms import HostUnfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from remuda.adapters.tart.settings import TartSettings
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

_MARKED: Final = 'echo $$ >"$0"; exec "$@"'
"""A disk on which not even that can be written is no reason not to delete a VM from it."""
_LOCK, _PID = ".lock", ".pid"
_GONE_S: Final = 10.0
_POLL_S: Final = 0.02
_FOLDER: Final = ".calls"
"""No VM's name begins with a dot."""


class Calls:
    """Calls the program, after whatever an earlier agent's calls left is gone."""

    def __init__(self, settings: TartSettings, clock: Clock, ids: Ids) -> None:
        self._settings, self._clock, self._ids = settings, clock, ids
        self._folder = settings.folder / _FOLDER
        self._sweeping = asyncio.Lock()
        self._swept = False

    async def call(self, op: str, deadline_s: float, *arguments: str) -> Finished:
        await self.sweep()
        env = self._settings.call_env()
        with self._marked(env) as (prefix, stdin):
            return await command(
                [*prefix, *arguments], op=op, deadline_s=deadline_s, env=env, stdin=stdin
            )

    async def pull(self, line: Callable[[bytes], bool], *arguments: str) -> Finished:
        """Call it for a pull: ``line`` says whether what it printed is progress."""
        await self.sweep()
        env = self._settings.call_env()
        with self._marked(env) as (prefix, stdin):
            return await streamed(
                [*prefix, "pull", *arguments],
                op="pull",
                idle_s=self._settings.deadlines.pull_idle,
                line=line,
                env=env,
                stdin=stdin,
            )

    @contextlib.contextmanager
    def _marked(self, env: dict[str, str]) -> Iterator[tuple[list[str], int | bytes]]:
        """Give the words to begin a call with, and its standard input."""
        program = shutil.which(self._settings.program, path=env.get("PATH"))
        if program is None:
            raise HostUnfit(
                f"{self._settings.program} could not be started",
                why="there is no such program",
                fix="Install tart on this host, or say where it is",
            )
        mark = self._folder / self._ids.uid()
        lock = _new_lock(mark.with_suffix(_LOCK))
        if lock is None:
            yield [program], b""
            return
        try:
            yield ["/bin/sh", "-c", _MARKED, str(mark.with_suffix(_PID)), program], lock
        finally:
            os.close(lock)
            _forget(mark)

    async def sweep(self) -> None:
        """End what an earlier agent's calls left, once: until then none of what is seen is sure to stay so."""
        async with self._sweeping:
            if not self._swept:
                for lock in sorted(self._folder.glob(f"*{_LOCK}")):
                    await self._end(lock.with_suffix(""))
                self._swept = True

    async def _end(self, mark: Path) -> None:
        deadline = self._clock.monotonic() + _GONE_S
        while _is_held(mark.with_suffix(_LOCK)) and self._clock.monotonic() < deadline:
            # Whoever holds the lock is of that call, so the number is still that of its group.
            with contextlib.suppress(OSError, ValueError):
                os.killpg(int(mark.with_suffix(_PID).read_text()), signal.SIGKILL)
            await self._clock.sleep(_POLL_S)
        _forget(mark)


def _new_lock(path: Path) -> int | None:
    """Make a file and lock it; None: the disk is too full for that."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _is_held(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _forget(mark: Path) -> None:
    for suffix in (_PID, _LOCK):
        with contextlib.suppress(OSError):
            mark.with_suffix(suffix).unlink()
