"""
The PostgreSQL server as a process of ours: started, waited for, stopped, and never left behind.

It must not outlive the process that started it, not even when that is killed outright. The portable way is a pipe:
this process alone holds one end, a tiny shell beside the server reads the other, and when the kernel closes it the
shell asks the server to shut down. (Linux could signal a child directly, macOS cannot.)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from remuda.adapters.postgres.failures import EmbeddedFailed, EmbeddedRefused, failure
from remuda.adapters.postgres.home import open_log, read_log, server_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.adapters.postgres.home import Account, Home

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
"""All that the programs see of ours: no PG* variable may lead them astray, and their messages are in one language."""

_POLL_S = 0.02
_KILLED_S = 10.0

# Arrives with: 0 the lock, 1 the lifeline, 2 the log. The server keeps the lock open, the watcher does not. The watcher
# is not the server's child: that takes the death of a child it does not know for a crash. Before it signals, it checks
# that the pid is still the server's: INT is a fast shutdown, QUIT an immediate one.
_WITH_LIFELINE = """
exec 3<&1 >&2
(
  {
    exec </dev/null 2>/dev/null >&2
    read -r nothing <&3
    for signal in INT QUIT; do
      read -r pid <"$0" && [ "$pid" = "$$" ] && kill -s "$signal" "$$" && sleep 30
    done
  } &
)
exec 3<&- "$@"
"""


class Postmaster:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int) -> None:
        self._process = process
        self._lifeline = lifeline

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended(self) -> int:
        """Wait until the server has ended, and return its exit code."""
        return await self._process.wait()

    async def stop(self, *, fast_s: float, immediate_s: float) -> None:
        """End it: all is written first. If that takes too long, at once; then the next start recovers."""
        steps = (signal.SIGINT, fast_s), (signal.SIGQUIT, immediate_s), (signal.SIGKILL, _KILLED_S)
        try:
            for number, patience_s in steps:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience_s):
                        await self._process.wait()
                        return
        finally:
            os.close(self._lifeline)


async def start(
    home: Home, command: Sequence[str], lock: int, account: Account | None, *, deadline_s: float
) -> Postmaster:
    """Start the server and wait until it takes connections."""
    log = open_log(home)
    log_start = os.fstat(log).st_size
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _WITH_LIFELINE, str(home.pid_file), *command),
            stdin=lock,
            stdout=read_end,
            stderr=log,
            cwd="/",
            env=ENVIRONMENT,
            umask=0o077,
            start_new_session=True,  # Ctrl-C is for us; we stop the server in our own order
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
        os.close(log)
    server = Postmaster(process, write_end)
    try:
        await _until_ready(home, process, log_start, deadline_s)
    except BaseException:
        await server.stop(fast_s=1.0, immediate_s=1.0)
        raise
    return server


async def run(
    command: Sequence[str], account: Account | None, *, deadline_s: float
) -> tuple[int, str]:
    """Run a program to its end and return its exit code and all that it said. One that is late is killed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd="/",
            env=ENVIRONMENT,
            umask=0o077,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except OSError as error:
        return 126, f"{command[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(deadline_s):
            said, _ = await process.communicate()
    except TimeoutError:
        return 124, f"{command[0]}: not done in {deadline_s} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return process.returncode or 0, said.decode(errors="replace")


async def _until_ready(
    home: Home, process: asyncio.subprocess.Process, log_start: int, deadline_s: float
) -> None:
    what = "The embedded PostgreSQL did not start"
    try:
        async with asyncio.timeout(deadline_s):
            while (await asyncio.to_thread(server_state, home)) != (process.pid, "ready"):
                if process.returncode is not None:
                    log = await asyncio.to_thread(read_log, home, log_start)
                    raise failure(what, log, log_path=str(home.log))
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise EmbeddedFailed(
            what,
            why=f"it was not ready in {deadline_s:g} s; after a crash it first replays its log",
            fix=f"Start it again, with more time; its log is {home.log}",
        ) from None


def not_runnable(program: str, said: str, account: Account | None) -> EmbeddedRefused:
    who = f" as user {account.name}" if account else ""
    return EmbeddedRefused(
        "The embedded PostgreSQL cannot start",
        why=f"{program} does not run here{who} ({said.strip()})",
        fix="Name a PostgreSQL server in REMUDA_DATABASE_URL instead",
    )
