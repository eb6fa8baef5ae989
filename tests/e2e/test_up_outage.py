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
from remuda.kube.core import EVENT
from remuda.ports.kube import Query
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
    await Run(tree.folder, "server").start(command, environment(os.environ, kept.driver))


async def runners_with_jobs(tree: Tree) -> set[str]:
    jobs = (await tree.api.get("/api/v1/jobs"))["jobs"]
    return {job["pod"] for job in jobs if job["state"] == "running"}


async def until_given_up_once(tree: Tree, runner: str) -> None:
    """Wait until a runner's agent has tried for a while to tell how its job ended, and says that it goes on trying."""
    async with administrator(tree.folder) as kube:

        async def probe() -> list[str]:
            events = (await kube.list(EVENT, Query(namespace=NAMESPACE))).items
            about = [event for event in events if event.involved_object.name == runner]
            return [event.message for event in about if event.reason == "StepFailed"]

        (said,) = await eventually(probe, within_s=WAIT_S)
    assert "dispatch has not heard how its job ended" in said


async def test_a_run_prints_all_and_returns_its_code_though_the_server_is_away_at_its_end(
    tmp_path: Path,
) -> None:
    with a_tree("--vms=2") as tree, contextlib.ExitStack() as stack:
        tree.up()
        plain = Waiter(tree, tmp_path, 7)
        stack.callback(plain.kill)
        await plain.begun()
        (runner,) = await runners_with_jobs(tree)
        with_files = Waiter(tree, tmp_path, 5, f"--download=kept:{tmp_path}")
        stack.callback(with_files.kill)
        await with_files.begun()

        async with no_server(tree):
            plain.go_on()
            with_files.go_on()
            await until_given_up_once(tree, runner)

        assert await plain.ended() == (7, "first\nlast\n"), tree.logs()
        assert await with_files.ended() == (5, "first\nlast\n"), tree.logs()
        assert (tmp_path / "kept").read_text() == "file\n"
        await Run(tree.folder, "server").stop(grace_s=WAIT_S)  # it is a child of this process
