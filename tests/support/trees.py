"""
``remuda up`` as people run it: a whole fleet in a temporary folder, killed in parts or as a whole, and started again.

    with a_tree("--vms=2") as tree:
        tree.up()
        …
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remuda.adapters import detached
from remuda.adapters.postgres.home import SOCKET_PORT, Home, socket_path
from remuda.cli.tree.folder import Folder, holder
from remuda.cli.tree.parts import STARTED
from remuda.cli.tree.runs import Run
from remuda.ports.vms import VM_PREFIX
from tests.support.agents import kill_all_below, processes_below
from tests.support.eventually import eventually
from tests.support.ordinary import ordinary_user
from tests.support.postgres import private_folder
from tests.support.processes import POLL_S, pause, seconds
from tests.support.servers import Api

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

UP_S = 330
DOWN_S = 180
WAIT_S = 120.0
OVER = frozenset({"completed", "failed", "cancelled", "lost"})
ENV = {
    "REMUDA_DISK_LOW": "0.0001",  # whatever is left of this machine's disk is enough
    "REMUDA_DISK_RECLAIM": "0.0001",
    "REMUDA_DISK_RESERVE": "1Mi",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said and returned."""

    code: int
    said: str


@dataclass(frozen=True, slots=True)
class Tree:
    """One data folder, and whatever runs in it."""

    data: Path
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """More variables for whoever is started."""
    prefix: tuple[str, ...] = ()
    """What commands are begun with, such as to run them as another user."""

    @property
    def folder(self) -> Folder:
        return Folder(self.data)

    @property
    def kubeconfig(self) -> Path:
        return self.folder.home.kubeconfig

    def argv(self, command: str, *more: str) -> list[str]:
        ours = (sys.executable, "-m", "remuda.cli.main")
        return [*self.prefix, *ours, command, f"--data={self.data}", *more]

    def remuda(self, command: str, *more: str, timeout_s: float = DOWN_S) -> Answer:
        """Run a command on this folder to its end."""
        answer = subprocess.run(  # noqa: S603 - our own command
            self.argv(command, *more),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **ENV, **self.env},
        )
        return Answer(answer.returncode, answer.stdout + answer.stderr)

    def begin(self, command: str, *more: str, **how: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - as Popen takes them
        """Begin a command on this folder, in a session of its own; its words are in ``stdout``."""
        return subprocess.Popen(  # noqa: S603 - our own command
            self.argv(command, *more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **ENV, **self.env},
            start_new_session=True,
            **how,
        )

    def begin_up(self, *more: str) -> subprocess.Popen[str]:
        """Begin to start it in the background, without waiting for it."""
        return self.begin("up", "--detach", *self.options, *more)

    def up(self, *more: str) -> str:
        """Start it in the background and wait until all is up; returns what it said."""
        answer = self.remuda("up", "--detach", *self.options, *more, timeout_s=UP_S)
        assert answer.code == 0, f"{answer.said}\n{self.logs()}"
        return answer.said

    def down(self, *more: str) -> str:
        answer = self.remuda("down", *more)
        assert answer.code == 0, f"{answer.said}\n{self.logs()}"
        return answer.said

    def status(self) -> Any:  # noqa: ANN401 - JSON
        """Return what ``remuda status -o json`` says; its exit code fits to that."""
        answer = self.remuda("status", "-o", "json")
        said = json.loads(answer.said)
        assert answer.code == (0 if said["ok"] else 1), answer.said
        return said

    # --- killing ---

    def pid(self, part: str) -> int:
        pid = Run(self.folder, part).pid
        assert pid is not None, f"the {part} was never started"
        return pid

    def kill(self, part: str) -> int:
        """Kill one part with SIGKILL; returns the pid it had."""
        assert Run(self.folder, part).is_alive, f"the {part} does not run\n{self.logs()}"
        pid = self.pid(part)
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_supervisor(self) -> None:
        pid = holder(self.folder)
        assert pid, "nobody tends the tree"
        os.kill(pid, signal.SIGKILL)

    def kill_all(self, *, vms: bool = False) -> None:
        """Kill whoever tends the tree and all parts at once; VMs too, if wanted."""
        with contextlib.suppress(AssertionError, ProcessLookupError):
            self.kill_supervisor()  # first: it would start again what is killed
        for part in STARTED:
            with contextlib.suppress(AssertionError, ProcessLookupError):
                self.kill(part)
        if vms:
            kill_all_below(self.data / "agent")

    def strike(self, *, vms: bool) -> frozenset[str]:
        """
        Kill every process of the tree in one moment, as kill -9 of all or, with the VMs, a power cut does.

        All are stopped before the first is killed, so that none sees another's end. Returns the runners whose VMs lived
        then, by name.
        """
        stopped: set[int] = set()
        while found := (set(self.processes()) - (set() if vms else self.vm_processes())) - stopped:
            for pid in found:
                _send(pid, signal.SIGSTOP)
            stopped |= found
        try:
            vms_then = self.vms()
        finally:  # whatever fails, nothing is left standing still
            for pid in stopped:
                _send(pid, signal.SIGKILL)
        deadline = seconds() + WAIT_S
        while stopped & set(self.processes()) and seconds() < deadline:
            pause(POLL_S)  # the dead take a moment to go
        return frozenset(self.runner_of(vm) for vm in vms_then)

    def runner_of(self, vm: str) -> str:
        """Return the name of the runner that a VM is, as the agent wrote it down before the VM was begun."""
        uid = vm.removeprefix(VM_PREFIX)
        file = self.folder.agent / "records" / "vms" / f"{uid}.json"
        return str(json.loads(file.read_text())["record"]["pod"])

    # --- looking ---

    def vm_processes(self) -> set[int]:
        """Return the processes of all VMs, which outlive those of the tree."""
        return set(processes_below(self.data / "agent"))

    def vms(self) -> list[str]:
        """Return the VMs of which something runs."""
        folders = [*self.folder.agent.glob("*/vms/remuda-*/run")]
        return [f.parent.name for f in folders if isinstance(detached.look(f), detached.Alive)]

    def processes(self) -> dict[int, str]:
        """Return all processes that have to do with the folder, VMs included."""
        return processes_below(self.data)

    async def until_well(self) -> Any:  # noqa: ANN401 - JSON
        """Wait until the status says that all is well, and return it."""

        async def probe() -> Any:  # noqa: ANN401 - JSON
            return self.status()

        return await eventually(probe, lambda said: said["ok"], within_s=WAIT_S)

    async def until_gone(self) -> None:
        """Wait until nothing has to do with the folder any more. Who gave it up may still be about to end."""

        async def probe() -> dict[int, str]:
            return self.processes()

        await eventually(probe, lambda left: left == {}, within_s=WAIT_S)

    def logs(self) -> str:
        files = sorted((self.data / "logs").glob("*.log"))
        return "\n".join(f"--- {f.name}\n{f.read_text(errors='replace')[-3000:]}" for f in files)

    # --- jobs ---

    @property
    def api(self) -> Api:
        home = self.folder.home
        addresses = home.addresses()
        assert addresses is not None, "it was never up"
        return Api(addresses.server, home.token_file.read_text().strip())

    async def post(self, script: str, pool: str = "default") -> str:
        """Submit a job, and return its ID."""
        job = await self.api.post("/api/v1/jobs", {"pool": pool, "script": script})
        return str(job["id"])

    async def until_job(self, job_id: str, *states: str) -> Any:  # noqa: ANN401 - JSON
        """Wait for a job to be in one of these states, over if none is given."""
        wanted = frozenset(states) or OVER

        async def probe() -> Any:  # noqa: ANN401 - JSON
            return await self.api.get(f"/api/v1/jobs/{job_id}")

        return await eventually(probe, lambda job: job["state"] in wanted, within_s=WAIT_S)

    async def exit_code(self, runner: str) -> int:
        """Wait until dispatch knows how the job of a runner ended, and return its exit code."""

        async def probe() -> Any:  # noqa: ANN401 - JSON
            return (await self.api.get(f"/api/v1/runners/{runner}"))["session"]

        session = await eventually(
            probe, lambda s: bool(s and s["exit_code"] is not None), within_s=WAIT_S
        )
        return int(session["exit_code"])


@contextlib.contextmanager
def an_ordinary_tree(*options: str) -> Iterator[Tree]:
    """Make a folder for a tree of an ordinary user, whoever runs the tests."""
    with a_tree(*options) as tree:
        user = ordinary_user()
        home = tree.data.parent
        if user.uid != os.geteuid():
            os.chown(home, user.uid, user.gid)
        env = {"HOME": str(home), "TMPDIR": str(home)}
        yield dataclasses.replace(tree, prefix=user.prefix, env=env)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@contextlib.contextmanager
def a_tree(
    *options: str, name: str = "fleet", env: Mapping[str, str] | None = None
) -> Iterator[Tree]:
    """Make a folder for a tree, which is not started yet; at the end all that runs in it is killed."""
    parent = private_folder()
    parent.chmod(0o755)  # as root, PostgreSQL runs as somebody else, who must get through
    tree = Tree(parent / name, ("--driver=process", *options), env or {})
    try:
        yield tree
    finally:
        tree.kill_all(vms=True)
        kill_all_below(parent)
        shutil.rmtree(parent, ignore_errors=True)
        socket = socket_path(Home(tree.folder.postgres), SOCKET_PORT).parent
        if parent not in socket.parents:  # the path was too long for a socket
            shutil.rmtree(socket, ignore_errors=True)
