"""A server that is away when jobs end: whoever waits for them in ``remuda run`` still gets all that they printed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from remuda.cli.tree.decide.driver import Size
from remuda.cli.tree.furnish import administrator
from remuda.cli.tree.parts import NAMESPACE, Layout, environment
from remuda.cli.tree.runs import Run
from remuda.kube.core import POD
from remuda.ports.kube import NotFound
from tests.support.eventually import eventually
from tests.support.trees import WAIT_S, Tree, a_tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from subprocess import Popen


class Waiter:
    """One ``remuda run`` whose job prints, waits for a word, prints once more and ends with a code."""

    def __init__(self, tree: Tree, marks: Path, code: int, *options: str) -> None:
        self._began, self._go = marks / f"began-{code}", marks / f"go-{code}"
        script = (
            f"echo first; touch {self._began}; while ! [ -e {self._go} ]; do sleep 0.1; done;"
            f" echo file >kept; echo last; exit {code}"
        )
        self._process: Popen[str] = tree.begin("run", "--quiet", *options, "--", "sh", "-c", script)

    async def begun(self) -> None:
        async def probe() -> bool:
            return self._began.exists()

        await eventually(probe, within_s=WAIT_S)

    def go_on(self) -> None:
        self._go.touch()

    async def ended(self) -> tuple[int, str]:
        said, _ = await asyncio.to_thread(self._process.communicate, timeout=2 * WAIT_S)
        return self._process.returncode, said

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.asynccontextmanager
async def no_server(tree: Tree) -> AsyncIterator[None]:
    """Kill the server, and who would start it again at once. At the end it is started as that one would."""
    tree.kill_supervisor()
    tree.kill("server")
    yield
    kept = tree.folder.kept()
    assert kept is not None, "it was up"
    command = Layout(tree.folder, kept).command(
        "server", Size(1, 1)
    )  # only an agent is told its size
    await Run(tree.folder, "server").start(command, environment(os.environ))


async def runners_with_jobs(tree: Tree) -> set[str]:
    jobs = (await tree.api.get("/api/v1/jobs"))["jobs"]
    return {job["pod"] for job in jobs if job["state"] == "running"}


async def until_removed(tree: Tree, runner: str) -> None:
    """Wait until the operator removes a runner: its agent has waited in vain, and told the Pod how the job ended."""
    async with administrator(tree.folder) as kube:

        async def probe() -> bool:
            try:
                pod = await kube.get(POD, runner, namespace=NAMESPACE)
            except NotFound:  # and gone since the last look
                return True
            return pod.metadata.deletion_timestamp is not None

        await eventually(probe, within_s=WAIT_S)


async def test_a_run_prints_all_and_returns_its_code_though_the_server_is_away_at_its_end(
    tmp_path: Path,
) -> None:
    """
    Two end without a server: one so early that its runner is being removed when the server is back, one just before.

    The first is told by an agent whose Pod is about to go, the other by one that waited with its Pod's end.
    """
    with a_tree("--vms=2") as tree, contextlib.ExitStack() as stack:
        tree.up()
        early = Waiter(tree, tmp_path, 7)
        stack.callback(early.kill)
        await early.begun()
        (runner,) = await runners_with_jobs(tree)
        late = Waiter(tree, tmp_path, 5, f"--download=kept:{tmp_path}")
        stack.callback(late.kill)
        await late.begun()

        async with no_server(tree):
            early.go_on()
            await until_removed(tree, runner)
            late.go_on()

        assert await early.ended() == (7, "first\nlast\n"), tree.logs()
        assert await late.ended() == (5, "first\nlast\n"), tree.logs()
        assert (tmp_path / "kept").read_text() == "file\n"
