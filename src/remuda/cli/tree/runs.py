"""
A part's process, as whoever comes later finds it: it lives on when its keeper is killed, and is known by a lock.

So the next ``remuda up``, or ``remuda down``, can end what a dead one left, and never takes a stranger for it.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from remuda.adapters import detached

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.cli.tree.folder import Folder

POLL_S: Final = 0.1
_KILL_S: Final = 20.0
_WITH_PID: Final = 'echo $$ >"$0" && exec "$@"'
"""Writes the pid that the program is going to have. The shell that watches over it has another."""
_PROGRAM: Final = "program"


@dataclass(frozen=True, slots=True)
class Run:
    """The process of one part, if there is one."""

    folder: Folder
    name: str

    async def start(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it; its output is added to its log. Raises VmsError if one is there already or none can be started."""
        place = self.folder.part(self.name)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        pid_file = place / _PROGRAM
        if not self.is_alive:
            pid_file.unlink(missing_ok=True)
            self.folder.bound_log(self.name)
        await detached.start(
            ["/bin/sh", "-c", _WITH_PID, str(pid_file), *argv],
            folder=place,
            log=self.folder.log(self.name),
            env=env,
            cwd=self.folder.root,
        )

    @property
    def is_alive(self) -> bool:
        return isinstance(detached.look(self.folder.part(self.name)), detached.Alive)

    @property
    def pid(self) -> int | None:
        """The program's own pid, for people; a signal goes to the whole group instead."""
        try:
            said = (self.folder.part(self.name) / _PROGRAM).read_text().strip()
        except OSError:
            return None
        return int(said) if said.isdigit() else None

    @property
    def since(self) -> datetime | None:
        """When it was started."""
        try:
            at = (self.folder.part(self.name) / _PROGRAM).stat().st_mtime
        except OSError:
            return None
        return datetime.fromtimestamp(at, UTC)

    async def stop(self, *, grace_s: float) -> bool:
        """Ask it to end, after a while make it; True: it ended when asked. Nothing happens if it does not run."""
        place, told = self.folder.part(self.name), False
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        while self.is_alive:
            # Told once, as a second time would cut short what it does at its end; and not before it is there to hear.
            if not told and self.pid is not None:
                told = detached.send(place, signal.SIGTERM)
            if loop.time() > deadline:
                await detached.kill(place, within_s=_KILL_S)
                return False
            await asyncio.sleep(POLL_S)
        return True
