"""``remuda agent`` as people run it: one process per host, killed, stopped and started again at will."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import aiohttp

from tests.support.eventually import eventually
from tests.support.processes import Processes, free_port, signal_group

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from types import TracebackType

READY_S = 90.0
STOP_S = 30.0
IMPATIENT = (
    "--heartbeat=1",
    "--status-interval=5",
    "--look-interval=0.5",
    "--stop-grace=2",
    "--resync=10",
    "--disk-low=0.0001",
    "--disk-reclaim=0.0001",
    "--disk-reserve=1Mi",
)
"""Quick enough for a test; and whatever is left of this machine's disk is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What one agent is told."""

    name: str
    folder: Path
    """Its data, its log, and whatever its driver needs."""
    kubeconfig: Path
    options: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ("remuda.cli.main", "agent")
    """The module that is run, and its first words."""
    port: int = field(default_factory=free_port)
    kubelet_port: int = field(default_factory=free_port)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def command(self, *more: str) -> list[str]:
        return [
            *(sys.executable, "-m", *self.program),
            f"--node-name={self.name}",
            f"--kubeconfig={self.kubeconfig}",
            f"--data={self.data}",
            f"--listen=127.0.0.1:{self.port}",
            f"--kubelet-listen=127.0.0.1:{self.kubelet_port}",
            "--address=127.0.0.1",
            *IMPATIENT,
            *self.options,
            *more,
        ]


class Agents:
    """All agents of a test. At the end they are stopped, and whatever they left running is killed."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._processes: dict[str, Processes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for processes in self._processes.values():
            processes.stop()
        for host in self._hosts.values():
            kill_all_below(host.folder)

    def add(self, host: Host) -> None:
        self._hosts[host.name] = host
        self._processes[host.name] = Processes(host.folder / "logs")

    def host(self, name: str) -> Host:
        return self._hosts[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._hosts)

    def start(self, name: str, *more: str, env: Mapping[str, str] | None = None) -> None:
        """Start it, again or for the first time."""
        host = self._hosts[name]
        told = {**host.env, **(env or {})}
        self._running[name] = self._processes[name].start(name, host.command(*more), told)

    def kill(self, name: str) -> None:
        """End it with SIGKILL, its VMs not."""
        process = self._running.pop(name)
        signal_group(process, signal.SIGKILL)
        process.wait()

    def stop(self, name: str) -> int:
        """Ask it to end, and return its exit code. Its VMs go on."""
        process = self._running.pop(name)
        signal_group(process, signal.SIGTERM)
        return process.wait(STOP_S)

    def is_started(self, name: str) -> bool:
        """Say whether it was started and neither stopped nor killed since."""
        return name in self._running

    def ended(self, name: str) -> int | None:
        """Return its exit code if it ended by itself."""
        return self._running[name].poll()

    async def until_ended(self, name: str, within_s: float = 60.0) -> int:
        """Wait until it ends by itself, and return its exit code."""
        process = self._running.pop(name)
        return await asyncio.to_thread(process.wait, within_s)

    def log(self, name: str) -> str:
        return self._processes[name].log(name).read_text(errors="replace")

    async def ready(self, name: str) -> None:
        async def said() -> tuple[int, str]:
            ended = self._running[name].poll()
            assert ended is None, f"{name} ended with {ended}\n{self.log(name)[-6000:]}"
            return await self.said(name, "/readyz")

        await eventually(said, lambda answer: answer[0] == 200, within_s=READY_S)

    async def said(self, name: str, path: str) -> tuple[int, str]:
        """Return what it answers, and 0 if it does not."""
        url = f"http://127.0.0.1:{self._hosts[name].port}{path}"
        try:
            async with aiohttp.ClientSession() as client, client.get(url) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError):
            return 0, ""

    async def metric(self, name: str, series: str) -> float | None:
        """Return the value of a series, written as Prometheus does: ``name{label="value"}``."""
        _, text = await self.said(name, "/metrics")
        for line in text.splitlines():
            said, _, value = line.rpartition(" ")
            if said == series:
                return float(value)
        return None

    def crashed(self) -> list[str]:
        """Return the agents that ended by themselves."""
        return [
            f"{name} ended with {process.returncode}\n{self.log(name)[-3000:]}"
            for name, process in tuple(self._running.items())
            if process.poll() is not None
        ]


def processes_below(folder: Path) -> dict[int, str]:
    """Return the processes that have to do with a folder, by their working directory or their arguments."""
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            at = str((entry / "cwd").readlink())
            if int(entry.name) != os.getpid() and (f"{folder}/" in words or _is_below(at, folder)):
                found[int(entry.name)] = words
    return found


def kill_all_below(folder: Path) -> None:
    """Kill what was left running on a host: VMs outlive their agents."""
    for pid in processes_below(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_below(path: str, folder: Path) -> bool:
    return path == str(folder) or path.startswith(f"{folder}/")
