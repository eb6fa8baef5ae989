"""
The demo's own fleet: a real ``remuda up`` in a temporary folder, ways to hurt it, and its end.

Whatever becomes of the demo, ``down`` ends all that was started and ``remove`` leaves nothing on the disk.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.adapters import detached
from remuda.adapters.postgres import home as postgres_home
from remuda.cli.demo.ending import kill_all
from remuda.cli.finding import Where
from remuda.cli.tree.decide.last_words import last_words
from remuda.cli.tree.folder import Folder
from remuda.cli.tree.parts import SERVER, Layout
from remuda.cli.tree.probes import ask
from remuda.cli.tree.runs import Run
from remuda.cli.tree.state import read_state
from remuda.model.errors import RemudaError
from remuda.ports.vms import vm_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from remuda.adapters.api_client import ApiClient
    from remuda.ports.clock import Clock

POOL: Final = "demo"
_UP_S: Final = 300.0
_DOWN_S: Final = 240.0
_POLL_S: Final = 0.1
_KILL_S: Final = 20.0
_ENV: Final = {
    # A demo needs next to no room, so whatever is left of a disk is enough for it.
    "REMUDA_DISK_LOW": "0.0001",
    "REMUDA_DISK_RECLAIM": "0.0001",
    "REMUDA_DISK_RESERVE": "1Mi",
}


class DemoFailed(RemudaError):
    """The demo could not be played to its end."""


class Fleet:
    """One ``remuda up``, from its beginning to its end."""

    def __init__(self, place: Path, runners: int, clock: Clock, *, down_s: float = _DOWN_S) -> None:
        self.place, self._runners, self._clock = place, runners, clock
        self._down_s = down_s
        self.awaits = "the fleet is not up"
        """What is not yet as it should be, and is waited for."""
        self.folder = Folder(place / "fleet")
        self.ledger = place / "ledger"
        self._up: asyncio.subprocess.Process | None = None

    @property
    def command(self) -> list[str]:
        """What is typed to start it."""
        data, pool, vms = self.folder.root, POOL, self._runners
        return ["up", f"--data={data}", "--driver=process", f"--pool={pool}", f"--vms={vms}"]

    # --- its life ---

    async def up(self) -> None:
        """Start it, and wait until all of it is ready."""
        self.ledger.mkdir(mode=0o700)
        with self._log.open("wb") as log:
            self.adopt(await _remuda(self.command, log.fileno()))
        assert self._up is not None
        deadline = self._clock.monotonic() + _UP_S
        while True:
            state = read_state(self.folder)
            if state is not None and state.ready:
                return
            if self._up.returncode is not None:
                said = self._log.read_text(errors="replace")
                words = last_words("tree", said, path=str(self._log))
                raise DemoFailed(words.what, why=words.why, fix=words.fix)
            if self._clock.monotonic() > deadline:
                raise DemoFailed(
                    "The fleet does not come up",
                    why=f"it takes longer than {_UP_S:.0f} s",
                    fix=f"See {self._log} and {self.folder.logs}",
                )
            await self._clock.sleep(_POLL_S)

    def adopt(self, up: asyncio.subprocess.Process) -> None:
        """Take a process that tends the fleet for its own: ``down`` ends it, and what it started."""
        self._up = up

    async def down(self) -> str:
        """End all of it, jobs included; returns what is wrong if that fails. Nothing happens if it never began."""
        if self._up is None:
            return ""
        with (self.place / "down.log").open("wb") as log:
            ending = await _remuda(
                ["down", f"--data={self.folder.root}", "--end-jobs"], log.fileno()
            )
        try:
            async with asyncio.timeout(self._down_s):
                code = await ending.wait()
                if (
                    self._up.returncode is None
                ):  # it may not have had the folder yet, and so was not found
                    with suppress(ProcessLookupError):
                        self._up.send_signal(signal.SIGTERM)
                await self._up.wait()
        except TimeoutError:
            killed = ", ".join(await self._kill_all(self._up, ending))
            return f"the fleet did not end within {self._down_s:.0f} s, so it was killed: {killed}"
        said = (self.place / "down.log").read_text(errors="replace").strip()
        if code == 0:
            return ""
        left = ", ".join(await self._kill_all(self._up, ending))
        rest = f"; what was left of it was killed: {left}" if left else ""
        return f"the fleet did not end well: {said}{rest}"

    async def _kill_all(self, *ours: asyncio.subprocess.Process) -> tuple[str, ...]:
        """Kill what we started ourselves, so that nobody starts anything anew, and then the rest of the fleet."""
        names = []
        for name, process in zip(("remuda up", "remuda down"), ours, strict=True):
            if process.returncode is None:
                names.append(name)
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return (*names, *await kill_all(self.folder, self._clock))

    def remove(self) -> None:
        """Remove all that it wrote."""
        home = postgres_home.Home(self.folder.postgres)
        socket = postgres_home.socket_path(home, postgres_home.SOCKET_PORT).parent
        if (
            self.place not in socket.parents
        ):  # its path was too long for a socket, which is elsewhere then
            shutil.rmtree(socket, ignore_errors=True)
        shutil.rmtree(self.place, ignore_errors=True)

    @asynccontextmanager
    async def api(self) -> AsyncIterator[ApiClient]:
        async with Where(data=self.folder.root).api() as client:
            yield client

    @property
    def _log(self) -> Path:
        return self.place / "up.log"

    # --- its parts ---

    def pid(self, part: str) -> int | None:
        """Return the pid of a part that lives."""
        run = Run(self.folder, part)
        return run.pid if run.is_alive else None

    def kill(self, part: str) -> int | None:
        """Kill one part with SIGKILL; returns the pid that it had."""
        pid = self.pid(part)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pid

    async def is_back(self, part: str, old: int | None) -> bool:
        """Tell whether another process than the old one does a part's work."""
        pid, kept = self.pid(part), self.folder.kept()
        if pid is None or pid == old or kept is None:
            return False
        return (await ask(Layout(self.folder, kept), part)).ready

    async def server_is_ready(self) -> bool:
        return await self.is_back(SERVER, None)

    async def kill_vm(self, uid: str) -> int | None:
        """Kill the processes behind one runner; returns the pid of their leader, or None if there are none."""
        run = self.folder.agent / "process" / "vms" / vm_name(uid) / "run"
        match detached.look(run):
            case detached.Alive(pid) if pid is not None:
                return pid if await detached.kill(run, within_s=_KILL_S) else None
            case _:
                return None


def temporary() -> Path:
    """Make a folder that nobody else writes to."""
    try:
        place = Path(tempfile.mkdtemp(prefix="remuda-demo-")).resolve()
    except OSError as error:
        raise DemoFailed(
            "There is no place for the demo",
            why=f"{tempfile.gettempdir()}: {error.strerror}",
            fix="Make room there, or name another folder: TMPDIR=/var/tmp remuda demo",
        ) from None
    if os.geteuid() == 0:
        place.chmod(0o711)  # PostgreSQL runs as somebody else, who must get through
    return place


async def _remuda(command: Sequence[str], log: int) -> asyncio.subprocess.Process:
    """Start one of our own commands, out of reach of the terminal's Ctrl-C: we end it ourselves, in order."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("REMUDA_")}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "remuda.cli.main",
        *command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**settings, **_ENV},
        start_new_session=True,
    )
