"""The guest's own program under each shell that it must run with, and the host's side of its mailbox."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.adapters.process.guest import guest_script
from remuda.adapters.process.leftovers import MARKER, kill_leftovers
from remuda.agent.mailbox import HostMailbox
from tests.support.debian import unpacked_or_skip
from tests.support.processes import pause, seconds

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.agent.decide.verdict import GuestExit
    from remuda.agent.mailbox import Signs

WAIT_S = 60.0
_TOOLS = "awk cat chmod cp date dd env id mkdir mkfifo mktemp mv rm sleep sh tail touch tr true uname yes ps head"
_TOOLS += " gzip ls tar wc"


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell, and the programs beside it."""

    argv: tuple[str, ...]
    path: str
    gives_interrupts_back: bool = True
    """Whether what runs beside the shell can be interrupted: GNU's env sees to it, or job control."""


SHELLS = ("dash", "bash", "busybox", "like-macos")


def a_shell(name: str, folder: Path) -> Shell:
    """Return one of SHELLS. Each has its own awk: Debian's is mawk, busybox has one, and macOS that of its makers."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "dash":
        return Shell((_found("dash"),), os.defpath)
    if name == "bash":
        return Shell((_found("bash"), "--posix"), os.defpath)
    if name == "busybox":
        busybox = unpacked_or_skip("busybox-static") / "bin" / "busybox"
        subprocess.run([busybox, "--install", "-s", folder], check=True)  # noqa: S603 - Debian's busybox
        return Shell((str(folder / "sh"),), str(folder), gives_interrupts_back=False)
    assert name == "like-macos"
    for tool in _TOOLS.split():  # all but setsid: there is none on macOS, where sh is bash
        (folder / tool).symlink_to(_found(tool))
    (folder / "awk").unlink()
    awk = unpacked_or_skip("original-awk") / "usr" / "bin" / "original-awk"
    (folder / "awk").symlink_to(awk)
    return Shell((_found("bash"), "--posix"), str(folder))


def _found(program: str) -> str:
    found = shutil.which(program, path=os.defpath)
    assert found, f"there is no {program}"
    return found


@dataclass
class Guest:
    """One guest and its mailbox."""

    shell: Shell
    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    first: str = ""
    """What its shell is told first: functions of that shell stand in for programs."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.place = self.folder / "mailbox"
        self.mailbox = HostMailbox(self.place)
        self.mailbox.make()
        self.runner = self.folder / "runner"

    def start(self, **env: str) -> None:
        """Start it, as the leader of a group of its own."""
        with (self.folder / "guest.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own script
                [*self.shell.argv, str(self._script())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    "PATH": self.shell.path,
                    "HOME": str(self.folder),
                    "REMUDA_MAILBOX": str(self.place),
                    "REMUDA_RUNNER": str(self.runner),
                    "REMUDA_WORK": str(self.folder / "work"),
                    "REMUDA_POWER_OFF": f"echo off >>'{self.folder}/power'",
                    "REMUDA_NAP_SECONDS": "0.05",
                    "REMUDA_GRACE_SECONDS": "1",
                    MARKER: str(self.folder),
                    **self.env,
                    **env,
                },
            )
        self.processes.append(process)

    def _script(self) -> Path:
        if not self.first:
            return guest_script()
        script = self.folder / "guest.sh"
        script.write_text(f"{self.first}\n. '{guest_script()}'\n")
        return script

    def put(self, script: str = "", **more: object) -> None:
        """Put a job in: a script, unless ``more`` says otherwise."""
        kind = {"kind": "local", "script": script} if script else {}
        self.put_document(json.dumps({"job_id": "local-1", **kind, **more}).encode())

    def put_document(self, document: bytes) -> None:
        self.mailbox.put_job(document)

    def put_runner(self, script: str) -> None:
        """Put a program there that stands for GitHub's runner."""
        (self.runner / "_diag").mkdir(parents=True)
        program = self.runner / "run.sh"
        program.write_text(f"#!/bin/sh\n{script}")
        program.chmod(0o755)

    def until(self, what: str) -> Signs:
        """Wait for a sign of the mailbox."""
        deadline = seconds() + WAIT_S
        while not getattr(signs := self.mailbox.look(), what):
            assert seconds() < deadline, f"no {what}: {signs}; {self.said()}"
            pause(0.02)
        return signs

    def until_logged(self, words: str) -> None:
        deadline = seconds() + WAIT_S
        while words not in self.log():
            assert seconds() < deadline, f"no {words!r} in {self.log()[-300:]!r}; {self.said()}"
            pause(0.02)

    def until_off(self) -> None:
        """Wait until it has powered its machine off and ended."""
        assert self.processes[-1].wait(WAIT_S) == 0, self.said()
        assert (self.folder / "power").read_text() == "off\n"

    def ended(self) -> GuestExit:
        """Wait until it is off, and return what it reported."""
        self.until_off()
        signs = self.mailbox.look()
        assert signs.exit is not None, f"{signs}; {self.said()}"
        return signs.exit

    def ran(self, script: str = "", **more: object) -> GuestExit:
        """Run a job from its beginning to its end."""
        self.put(script, **more)
        self.start()
        return self.ended()

    def log(self) -> str:
        log = self.place / "runner.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def said(self) -> str:
        return (self.folder / "guest.log").read_text(errors="replace")[-1000:]

    def close(self) -> None:
        """End what is left, also of what its jobs left."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        while kill_leftovers(self.folder):
            pause(0.02)
