"""The stand-in as a test has it: a program to put on PATH, VMs to begin with, faults to order, a journal to read."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.tart.faults import Desk, Fault
from tests.support.tart.process_guest import bootable
from tests.support.tart.vms import Vm, new_config

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[3]
CALL_S = 60.0
_LAUNCHER = """\
#!{python} -SE
import os, sys
sys.path[:0] = {path!r}
os.environ.setdefault("TART_HOME", {home!r})
os.environ.setdefault("TART_STAND_IN", {stand_in!r})
from tests.support.tart.program import main
sys.exit(main(sys.argv[1:]))
"""
"""
A program named tart, not a module that is run: ``tart run <name>`` must stand in the argv, for pgrep.

It starts without ``site`` and is told where everything is: it is started thousands of times.
"""


@dataclass(frozen=True, slots=True)
class StandIn:
    """One installation with one home."""

    folder: Path
    backend: str = "process"
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for part in (self.program.parent, self.home / "vms", self.desk.folder):
            part.mkdir(parents=True, exist_ok=True)
        (self.desk.folder / "backend").write_text(self.backend)
        text = _LAUNCHER.format(
            python=sys.executable,
            path=[str(ROOT), str(ROOT / "src"), sysconfig.get_path("platlib")],
            home=str(self.home),
            stand_in=str(self.desk.folder),
        )
        self.program.write_text(text)
        self.program.chmod(0o755)

    @property
    def program(self) -> Path:
        return self.folder / "bin" / "tart"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def desk(self) -> Desk:
        return Desk(self.folder / "stand-in")

    def env(self) -> dict[str, str]:
        path = f"{self.program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "TART_HOME": str(self.home), "HOME": str(self.folder)}

    def call(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - our own program
            [str(self.program), *arguments],
            env={**self.env(), **(env or {})},
            capture_output=True,
            text=True,
            timeout=CALL_S,
            check=False,
        )

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a call that takes its time; it has a group of its own."""
        process = subprocess.Popen(  # noqa: S603 - our own program
            [str(self.program), *arguments],
            env={**self.env(), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill a call and what it started, as an agent does at a deadline."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=CALL_S)

    def close(self) -> None:
        """End all calls that were started."""
        for process in self._started:
            if process.stdout is not None and not process.stdout.closed:
                self.kill(process)

    def vm(self, name: str) -> Vm:
        return Vm(name, self.home / "vms" / name)

    def make(
        self,
        name: str,
        program: str = "",
        *,
        os_name: str = "darwin",
        disk_bytes: int = 1024 * 1024,
    ) -> Vm:
        """Make a VM out of nothing, as ``tart create`` would."""
        vm = self.vm(name)
        vm.folder.mkdir(parents=True)
        vm.save(new_config(os_name))
        vm.nvram.write_bytes(b"nvram")
        vm.disk.write_bytes(bootable(program, disk_bytes) if program else b"")
        os.truncate(vm.disk, disk_bytes)
        return vm

    def listed(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Return what list says, by name."""
        answer = self.call("list", "--format", "json", *arguments)
        assert answer.returncode == 0, answer.stderr
        return {row["Name"]: row for row in json.loads(answer.stdout)}

    def order(self, *faults: Fault) -> None:
        self.desk.order(*faults)

    def boots(self, name: str) -> list[dict[str, Any]]:
        """Return each boot of a VM of this name; ``disk`` says which disk it was."""
        return [n for n in self.desk.journal() if n["event"] == "boot" and n["vm"] == name]
