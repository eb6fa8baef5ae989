"""``remuda control-plane`` as a user runs it: its own process, in a data directory, killed at will."""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from signal import SIGKILL
from typing import TYPE_CHECKING

from remuda.adapters.kube_client import HttpWire, kubeconfig
from tests.support.processes import Processes, free_port, signal_group

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

NAME = "remuda-control-plane"


class StandaloneProcess:
    """One control plane on one port, started and killed any number of times over the same data."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self.processes = Processes(folder / "logs")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.data / "kubeconfig"

    @property
    def log(self) -> str:
        return self.processes.log(NAME).read_text()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "remuda.cli.main", "control-plane"]
        options = ["--data", str(self.data), "--port", str(self.port)]
        self._process = self.processes.start(NAME, [*command, *options])
        self.processes.wait_until(NAME, self._answers, "/readyz", timeout_s=30.0)

    def kill(self) -> None:
        """End it with SIGKILL: no handler, no flush, no goodbye."""
        assert self._process is not None
        signal_group(self._process, SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self.processes.stop()

    def wire(self) -> HttpWire:
        """Connect as its kubeconfig says."""
        return HttpWire(kubeconfig.load(self.kubeconfig))

    def _answers(self) -> bool:
        ca = self.data / "pki" / "ca.crt"
        if not ca.exists():
            return False
        context = ssl.create_default_context(cafile=str(ca))
        try:
            with urllib.request.urlopen(
                f"https://127.0.0.1:{self.port}/readyz", timeout=2, context=context
            ) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False
