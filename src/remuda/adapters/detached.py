"""
Processes that outlive us: started once, in a session of their own, with their end written down by who awaits it.

A small shell is the parent of each. It holds a lock for as long as it lives, writes its pid before it starts anything,
and the exit code when it is over; then it kills what is left of its group. So a program that was started by an agent
which is gone can be found again, and a pid that now belongs to somebody else is never taken for it: the lock is the
proof of life, not the pid. Should the shell itself be killed, what it started is still known to live by the lock that
goes with its output. Nothing here waits for the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from remuda.ports.vms import HostUnfit, NoSpace, StillRunning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_SHELL: Final = "/bin/sh"
_SHIM: Final = """\
umask 077
run=$1
shift
trap : HUP INT QUIT TERM USR1 USR2
echo $$ >"$run/pid" || exit 125
"$@" </dev/null
echo $? >"$run/end"
kill -KILL 0
"""
"""
Signals to the group reach the program with their usual meaning; the shell survives them to see the end. Its own
standard input is the lock, which the program does not get.
"""
_LOCK, _PID, _END, _LOG = "lock", "pid", "end", "output"
_TAKE_S: Final = 2.0
_POLL_S: Final = 0.02
_NUMBER_MAX_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Alive:
    """It runs."""

    pid: int | None
    """The leader of its group and its session; None: it has not said so yet."""


@dataclass(frozen=True, slots=True)
class Over:
    """It was started, and nothing of it is left that we would know of."""

    code: int | None
    """Its exit code; above 128: that less 128 is the signal that ended it. None: nobody saw its end."""
    at: datetime | None


_children: set[subprocess.Popen[bytes]] = set()
"""The shells that this process started itself: it has to take note of their ends, or they remain as zombies."""


async def start(
    argv: Sequence[str],
    *,
    folder: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """
    Start a program that lives on without us. ``folder`` is for what is known of it, and for nothing else.

    Its output is added to ``log``, which only this user can read. StillRunning if the one before it is not over.
    A program that cannot be started ends with 126 or 127.
    """
    with _told(argv[0]), contextlib.ExitStack() as opened:
        lock = await _taken(opened, folder / _LOCK)
        output = await _taken(opened, log)
        _begin([str(part) for part in argv], _Place(folder, log, cwd), (lock, output), env)


@dataclass(frozen=True, slots=True)
class _Place:
    folder: Path
    log: Path
    cwd: Path | None


def _begin(
    argv: list[str], place: _Place, held: tuple[int, int], env: Mapping[str, str] | None
) -> None:
    for name in (_PID, _END, _LOG):
        (place.folder / name).unlink(missing_ok=True)
    (place.folder / _LOG).symlink_to(place.log.resolve())
    lock, output = held
    process = subprocess.Popen(  # noqa: S603 - our own script; the program is a list of arguments
        [_SHELL, "-c", _SHIM, "remuda-run", str(place.folder.resolve()), *argv],
        stdin=lock,
        stdout=output,
        stderr=output,
        env=None if env is None else dict(env),
        cwd=place.cwd or place.folder,
        start_new_session=True,
    )
    _children.add(process)


@contextlib.contextmanager
def _told(program: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise (NoSpace if full else HostUnfit)(
            f"{program} was not started",
            why=error.strerror or type(error).__name__,
            fix="Make room" if full else f"Check that {_SHELL} and the agent's folder can be used",
        ) from None


def look(folder: Path) -> Alive | Over | None:
    """Say what became of a program; None: none was ever started here. Blocks for no longer than a disk takes."""
    _reap()
    held = _is_held(folder / _LOCK)
    if held is None:
        return None
    if held:
        return Alive(_number(folder / _PID))
    if _is_held(folder / _LOG) and not (folder / _END).exists():
        return Alive(_number(folder / _PID))  # the shell was killed, the program was not
    if (code := _number(folder / _END)) is None:
        return Over(None, None)
    return Over(code, datetime.fromtimestamp((folder / _END).stat().st_mtime, UTC))


def send(folder: Path, number: signal.Signals) -> bool:
    """Send a signal to the whole group, or to nobody; False: there is nothing of ours to send it to."""
    _reap()
    pid = _number(folder / _PID)
    if pid is None or pid <= 1:
        return False
    if not _is_held(folder / _LOCK) and (_exists(pid) or not _is_held(folder / _LOG)):
        return False  # with the shell gone, a process of its number is another's; a group of that number is ours
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):  # the latter: only the dead are left, on macOS
        return False
    return True


async def kill(folder: Path, *, within_s: float) -> bool:
    """Kill the whole group and wait until it is gone; True: nothing of it is left. No end is written down for it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while isinstance(look(folder), Alive):
        send(folder, signal.SIGKILL)
        if loop.time() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


async def _taken(opened: contextlib.ExitStack, path: Path) -> int:
    """Open a file and take its lock, which whoever inherits the descriptor shares. A look may hold it for a moment."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _TAKE_S
    file = _made(path)
    opened.callback(os.close, file)
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if loop.time() > deadline:
                raise StillRunning(
                    f"Nothing was started in {path.parent.name}",
                    why="what was started there before still runs",
                    fix="Stop it first",
                ) from None
            await asyncio.sleep(_POLL_S)
        else:
            return file


def _made(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    os.fchmod(file, 0o600)
    return file


def _is_held(path: Path) -> bool | None:
    """Say whether somebody holds a file's lock; None: there is no file."""
    with _opened(path) as file:
        if file is None:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _number(path: Path) -> int | None:
    """Read a number that is there whole: its line has an end."""
    with _opened(path) as file:
        raw = b"" if file is None else os.read(file, _NUMBER_MAX_BYTES)
    return int(raw) if raw.endswith(b"\n") and raw[:-1].isdigit() else None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _reap() -> None:
    for process in list(_children):
        if process.poll() is not None:
            _children.discard(process)
