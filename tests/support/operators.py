"""``remuda controller`` as people run it: two processes on one Lease, killed and started again at will."""

from __future__ import annotations

import sys
from signal import SIGKILL
from typing import TYPE_CHECKING, Self

from remuda.kube.core import LEASE
from remuda.ports.kube import NotFound
from tests.support.eventually import eventually
from tests.support.processes import Processes, end, free_port, signal_group

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path
    from types import TracebackType

    from remuda.ports.kube import Kube

LEASE_NAME = "remuda-controller"
IMPATIENT = (
    "--lease-duration=2",
    "--renew-deadline=1",
    "--lease-retry=0.3",
    "--sweep-interval=2",
    "--orphan-grace=10",
)
TAKEOVER_S = 30.0


class Operators:
    """A leader and a standby. Each start is another candidate, so its name says which start it is."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        namespace: str,
        dispatch: str,
        token_file: Path | None = None,
        candidates: int = 2,
    ) -> None:
        self._kubeconfig, self._namespace, self._dispatch = kubeconfig, namespace, dispatch
        self._token_file, self._candidates = token_file, candidates
        self._processes = Processes(folder)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._starts = 0

    def __enter__(self) -> Self:
        for _ in range(self._candidates):
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.stop()

    def start(self) -> str:
        """Start one more candidate, and return its name."""
        self._starts += 1
        name = f"candidate-{self._starts}"
        command = [sys.executable, "-m", "remuda.cli.main", "controller"]
        options = [
            f"--kubeconfig={self._kubeconfig}",
            f"--namespace={self._namespace}",
            f"--identity={name}",
            f"--listen=127.0.0.1:{free_port()}",
            f"--dispatch-url={self._dispatch}",
            *IMPATIENT,
        ]
        if self._token_file is not None:
            options.append(f"--dispatch-token-file={self._token_file}")
        self._running[name] = self._processes.start(name, [*command, *options])
        return name

    def kill(self, name: str) -> None:
        """End it with SIGKILL: it gives nothing back."""
        process = self._running.pop(name)
        signal_group(process, SIGKILL)
        process.wait()

    def stop(self, name: str) -> None:
        end(self._running.pop(name))

    async def leader(self, kube: Kube) -> str:
        """Wait until one that runs leads, and return its name."""

        async def holder() -> str:
            assert self.crashed() == [], self.logs()[-4000:]
            try:
                lease = await kube.get(LEASE, LEASE_NAME, namespace=self._namespace)
            except NotFound:
                return ""
            return str(lease.spec.holder_identity or "")

        return await eventually(holder, lambda name: name in self._running, within_s=TAKEOVER_S)

    def logs(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self._folder.glob("*.log")))

    def crashed(self) -> list[str]:
        """Return the processes that ended by themselves."""
        return [
            f"{n} ended with {p.returncode}"
            for n, p in self._running.items()
            if p.poll() is not None
        ]
