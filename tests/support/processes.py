"""Server processes of a test run: started with a log file, waited for, and always ended, by process group."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STOP_S = 10.0
POLL_S = 0.05
PORTS = Path(tempfile.gettempdir()) / f"remuda-test-ports-{os.getuid()}"
"""A note for each port that a process of some test run has for itself."""


class NotReady(Exception):
    """A server did not come up. The text ends with the tail of its log."""


class Processes:
    """
    What one fixture has started; ``stop`` ends all of it, the last started first.

    Each is a session of its own, so that Ctrl-C reaches pytest alone and the servers end in order. They also end when
    this process is killed outright: on Linux the kernel is asked to see to it.
    """

    def __init__(self, log_folder: Path) -> None:
        self._log_folder = log_folder
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        log_folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self.stop)

    def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - the test's own servers
                [*_die_with_parent(), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self._started[name] = process
        return process

    def log(self, name: str) -> Path:
        return self._log_folder / f"{name}.log"

    def wait_until(
        self, name: str, ready: Callable[[], bool], what: str, timeout_s: float = 60.0
    ) -> None:
        """Poll until ``ready``; a server that ended or is late raises NotReady with its log's tail."""
        deadline = seconds() + timeout_s
        while not ready():
            ended = self._started[name].poll()
            if ended is not None:
                raise NotReady(f"{name} ended with {ended} before {what}.\n{self._tail(name)}")
            if seconds() > deadline:
                raise NotReady(f"{name}: {what} not seen in {timeout_s} s.\n{self._tail(name)}")
            pause(POLL_S)

    def stop(self) -> None:
        atexit.unregister(self.stop)
        while self._started:
            _, process = self._started.popitem()
            end(process)

    def _tail(self, name: str, lines: int = 30) -> str:
        text = self.log(name).read_text(errors="replace").splitlines()
        return "\n".join(text[-lines:])


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process's group to end; after a while make it."""
    signal_group(process, signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        signal_group(process, signal.SIGKILL)
        process.wait()


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def free_port() -> int:
    """
    Return a loopback port that nobody listens on now, and that no outgoing connection is given meanwhile.

    It is this process's to its end: before a server listens on it, another run or worker could be given it too.
    """
    while True:
        port = secrets.choice(range(10_000, 20_000))
        if not _reserved(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _reserved(port: int) -> bool:
    """Put a port down as ours. False: a process that lives has it, also if that is this one."""
    PORTS.mkdir(exist_ok=True)
    note = PORTS / str(port)
    try:
        with note.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        if _lives(note):
            return False
        note.unlink(missing_ok=True)
        return _reserved(port)
    atexit.register(note.unlink, missing_ok=True)
    return True


def _lives(note: Path) -> bool:
    """Say whether who wrote a note lives. One that is being written is its writer's."""
    try:
        os.kill(int(note.read_text() or os.getpid()), 0)
    except FileNotFoundError:
        return True  # it is being given up, or taken
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def seconds() -> float:
    return time.monotonic()  # noqa: TID251 - other processes start in real time, outside any loop


def pause(seconds_long: float) -> None:
    threading.Event().wait(seconds_long)


def _die_with_parent() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
