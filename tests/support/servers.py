"""``remuda server`` as people run it: replicas on one database, killed, stopped and started again at will."""

from __future__ import annotations

import sys
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from remuda.adapters.system import SystemClock, SystemIds
from remuda.dispatch import tokens
from remuda.ports.api_tokens import Role
from tests.support.eventually import eventually
from tests.support.processes import Processes, free_port, signal_group

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from remuda.ports.api_tokens import ApiTokens

READY_S = 60.0
STOP_S = 40.0


class Servers:
    """Replicas, each on a port of its own that it keeps when it is started again."""

    def __init__(
        self, folder: Path, kubeconfig: Path, namespace: str, env: Mapping[str, str]
    ) -> None:
        self._processes = Processes(folder)
        self._folder, self._env = folder, env
        self._kubeconfig, self._namespace = kubeconfig, namespace
        self._ports: dict[str, int] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.stop()

    def act_as(self, kubeconfig: Path) -> None:
        """Have replicas that are started from now on use another kubeconfig."""
        self._kubeconfig = kubeconfig

    def url(self, name: str) -> str:
        port = self._ports.setdefault(name, free_port())
        return f"http://127.0.0.1:{port}"

    def some_url(self) -> str:
        """Return the address of a replica that runs, as a Service would choose one."""
        alive = (name for name, process in self._running.items() if process.poll() is None)
        return self.url(next(alive, next(iter(self._ports))))

    def start(self, name: str, *options: str, dies_at: str = "none", unused_s: float = 300) -> None:
        """
        Start a replica.

        With ``dies_at`` it kills itself at that step of its first hand-over; ``unused_s`` is a grace.
        """
        plain = dies_at == "none" and unused_s == 300
        changed = ["tests.support.changed_server", dies_at, str(unused_s)]
        module = ["remuda.cli.main", "server"] if plain else changed
        listen = self.url(name).removeprefix("http://")
        given = [f"--kubeconfig={self._kubeconfig}", f"--namespace={self._namespace}"]
        command = [sys.executable, "-m", *module, *given, f"--listen={listen}", *options]
        self._running[name] = self._processes.start(name, command, self._env)

    async def ready(self, name: str) -> None:
        async def status() -> int:
            ended = self._running[name].poll()
            assert ended is None, f"{name} ended with {ended}\n{self.log(name)[-4000:]}"
            return await _status(f"{self.url(name)}/readyz")

        await eventually(status, lambda seen: seen == 200, within_s=READY_S)

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        signal_group(process, SIGKILL)
        process.wait()

    def stop(self, name: str) -> int:
        """Ask it to end, and return its exit code."""
        process = self._running.pop(name)
        signal_group(process, SIGTERM)
        return process.wait(STOP_S)

    def has_died(self, name: str) -> bool:
        return self._running[name].poll() is not None

    def log(self, name: str) -> str:
        return self._processes.log(name).read_text(errors="replace")

    def logs(self) -> str:
        return "\n".join(f.read_text(errors="replace") for f in sorted(self._folder.glob("*.log")))


class Api:
    """The API as a person with a token uses it."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._headers = url, {"Authorization": f"Bearer {token}"}

    async def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return await self._ask("GET", path)

    async def post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
        return await self._ask("POST", path, body)

    async def text(self, path: str) -> str:
        async with (
            aiohttp.ClientSession(headers=self._headers) as client,
            client.get(self._url + path) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await answer.text()

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        async with (
            aiohttp.ClientSession(headers=self._headers) as client,
            client.request(method, self._url + path, json=body) as answer,
        ):
            assert answer.status < 300, f"{method} {path}: {answer.status} {await answer.text()}"
            return await answer.json()


async def a_token(kept: ApiTokens, name: str = "tester", role: Role = Role.OPERATE) -> str:
    made = await tokens.create(kept, name, role, ids=SystemIds(), clock=SystemClock())
    return made.text


async def _status(url: str) -> int:
    try:
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            return answer.status
    except aiohttp.ClientError:
        return 0
