"""A part's process is known by its lock: whoever comes later can end it, and takes no stranger for it."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.cli.tree.folder import Folder
from remuda.cli.tree.runs import Run
from remuda.ports.vms import StillRunning
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

SLEEP = ["/bin/sh", "-c", "echo begun; exec sleep 600"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = Folder(tmp_path)
    folder.logs.mkdir()
    return Run(folder, "server")


async def begun(run: Run, word: str) -> int:
    async def pid() -> int | None:
        return run.pid if word in run.folder.tail("server") else None

    found = await eventually(pid, within_s=60)
    assert found is not None
    return found


async def test_it_is_found_by_whoever_comes_later_and_ended(run: Run) -> None:
    assert not run.is_alive
    await run.start(SLEEP, os.environ)
    pid = await begun(run, "begun")
    later = Run(run.folder, "server")

    assert later.is_alive
    assert later.pid == pid
    assert later.since is not None
    assert await later.stop(grace_s=60)
    assert not run.is_alive


async def test_none_is_started_beside_another(run: Run) -> None:
    await run.start(SLEEP, os.environ)
    pid = await begun(run, "begun")
    try:
        with pytest.raises(StillRunning):
            await run.start(SLEEP, os.environ)
        assert run.pid == pid
    finally:
        assert await run.stop(grace_s=60)


async def test_what_does_not_listen_is_killed(run: Run) -> None:
    await run.start(STUBBORN, os.environ)
    await begun(run, "deaf")

    assert not await run.stop(grace_s=0.2)
    assert not run.is_alive


async def test_killed_it_is_known_to_be_gone_and_can_be_started_again(run: Run) -> None:
    await run.start(SLEEP, os.environ)
    os.kill(await begun(run, "begun"), signal.SIGKILL)

    async def alive() -> bool:
        return run.is_alive

    await eventually(alive, lambda is_alive: not is_alive, within_s=60)
    await run.start(SLEEP, os.environ)
    assert run.is_alive
    assert await run.stop(grace_s=60)


async def test_to_stop_nothing_is_nothing(run: Run) -> None:
    assert await run.stop(grace_s=1)
