"""
Processes that a guest left behind: found by a variable in their environment, and killed.

A process group and a session can be left; the environment is inherited by all that does not take care to lose it. On
Linux what works in the guest's folder is found as well, unless it has a terminal: that may be a person's shell. Not
found, on either system: a process that emptied its environment, went to another folder and lost its parent. That is
what "without isolation" means. On macOS only the environment is looked at, as far as ``ps`` shows it: not that of
programs that came with the system.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MARKER: Final = "REMUDA_VM"
"""The variable. Its value is the guest's folder: no two guests have the same."""
_ENVIRON_MAX_BYTES: Final = 4 * 1024 * 1024
_TERMINAL: Final = 4
"""Which number in ``/proc/PID/stat``, counted from behind the name, is that of its terminal."""
_PS_S: Final = 10.0


def leftovers(folder: Path) -> tuple[int, ...]:
    """Return the processes of a guest, by its folder. Blocks for as long as it takes to look at every process."""
    if sys.platform == "linux":
        return tuple(pid for pid in _pids() if _belongs(pid, folder))
    return shown_by_ps(folder, "-axEww")


def kill_leftovers(folder: Path) -> bool:
    """Kill what there is of a guest; False: nothing was found. What they start meanwhile is found the next time."""
    found = leftovers(folder)
    for pid in found:
        _kill(pid, lambda pid=pid: sys.platform != "linux" or _belongs(pid, folder))  # type: ignore[misc] # mypy cannot infer a lambda's default
    return bool(found)


def shown_by_ps(folder: Path, flags: str) -> tuple[int, ...]:
    """Return the processes whose environment, as ``ps`` shows it, names the folder."""
    listed = subprocess.run(  # noqa: S603 - fixed words
        ["/bin/ps", flags, "-o", "pid=,command="],
        capture_output=True,
        timeout=_PS_S,
        check=False,
    ).stdout
    wanted = f" {MARKER}={folder} ".encode()
    lines = (line.strip().partition(b" ") for line in listed.splitlines())
    return tuple(int(pid) for pid, _, shown in lines if pid.isdigit() and wanted in shown + b" ")


def _pids() -> Iterable[int]:
    return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _belongs(pid: int, folder: Path) -> bool:
    place = Path("/proc") / str(pid)
    with contextlib.suppress(OSError):  # it is gone, or not ours
        with (place / "environ").open("rb", buffering=0) as environ:
            variables = environ.read(_ENVIRON_MAX_BYTES).split(b"\0")
        return f"{MARKER}={folder}".encode() in variables or _works_in(place, folder)
    return False


def _works_in(place: Path, folder: Path) -> bool:
    """Say whether a process is in the folder, and no person's shell: those have a terminal."""
    at = str((place / "cwd").readlink()).removesuffix(" (deleted)")
    if at != str(folder) and not at.startswith(f"{folder}/"):
        return False
    after_name = (place / "stat").read_bytes().rpartition(b")")[2].split()
    return after_name[_TERMINAL] == b"0"


def _kill(pid: int, still_it: Callable[[], bool]) -> None:
    """Kill one process, and no other that has its number by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if not hasattr(os, "pidfd_open"):
            os.kill(pid, signal.SIGKILL)
            return
        handle = os.pidfd_open(pid)
        try:
            if still_it():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
