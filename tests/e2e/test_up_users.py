"""An ordinary user's fleet: begun in a terminal, interrupted there while a job runs, and begun again."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.eventually import eventually
from tests.support.trees import DOWN_S, UP_S, WAIT_S, Tree, an_ordinary_tree

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator


@pytest.fixture
def tree() -> Iterator[Tree]:
    with an_ordinary_tree("--vms=1") as made:
        yield made


async def test_ctrl_c_stops_all_but_the_job_and_the_next_start_takes_it_up(tree: Tree) -> None:
    process = tree.begin("up", *tree.options)
    try:
        await _until_well(tree, process)
        ran = await asyncio.to_thread(
            tree.remuda, "run", "--quiet", "--", "sh", "-c", "id -u; exit 7", timeout_s=WAIT_S
        )
        assert ran.code == 7, ran.said
        assert ran.said == f"{tree.data.stat().st_uid}\n"
        assert ran.said != "0\n", "it is root's"

        go = tree.data.parent / "go"
        job = await tree.post(f"until [ -e {go} ]; do sleep 0.1; done; echo gone on; exit 3")
        await tree.until_job(job, "running")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all that it shows
        said, _ = await asyncio.to_thread(process.communicate, timeout=DOWN_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, said
    assert "Stopped." in said
    assert "jobs that run go on" in said
    assert "Traceback" not in said
    assert len(tree.vms()) == 1, "the job goes on"
    assert "Nothing runs" in tree.status()["says"]

    tree.up()
    go.touch()
    over = await tree.until_job(job)
    assert await tree.exit_code(over["pod"]) == 3
    assert await tree.api.text(f"/api/v1/jobs/{job}/logs") == "gone on\n"
    said = tree.down()
    assert "It is down." in said
    assert "VM" not in said, "no job is left"
    await tree.until_gone()


async def _until_well(tree: Tree, process: subprocess.Popen[str]) -> None:
    async def probe() -> bool:
        assert process.poll() is None, f"it ended\n{tree.logs()}"
        return bool(tree.status()["ok"])

    await eventually(probe, within_s=UP_S)
