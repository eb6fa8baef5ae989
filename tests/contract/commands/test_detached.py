"""Processes that outlive whoever started them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.adapters import detached
from remuda.adapters.detached import Alive, Over
from remuda.ports.vms import HostUnfit, StillRunning
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
LONG_S = 60.0
STARTER = """
import asyncio, os, sys
from pathlib import Path
from remuda.adapters import detached

async def main():
    folder = Path(sys.argv[1])
    await detached.start(sys.argv[2:], folder=folder / "run", log=folder / "log")
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
"""An agent that is killed the moment it has started something."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "run"
    yield folder
    while isinstance(detached.look(folder), Alive):
        detached.send(folder, signal.SIGKILL)


async def start(folder: Path, script: str, *arguments: str) -> None:
    argv = ["/bin/sh", "-c", script, "sh", *arguments]
    await detached.start(argv, folder=folder, log=folder.parent / "log")


async def alive(folder: Path) -> int:
    async def known() -> int | None:
        found = detached.look(folder)
        assert isinstance(found, Alive), found
        return found.pid

    pid = await eventually(known, within_s=LONG_S)
    assert pid is not None
    return pid


async def over(folder: Path) -> Over:
    async def ended() -> Alive | Over | None:
        return detached.look(folder)

    found = await eventually(ended, lambda seen: isinstance(seen, Over), within_s=LONG_S)
    assert isinstance(found, Over)
    return found


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def there(path: Path) -> str:
    async def read() -> str:
        return text_of(path)

    return await eventually(read, lambda text: text.endswith("\n"), within_s=LONG_S)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def gone(pid: int) -> None:
    async def is_gone() -> bool:
        return not exists(pid)

    await eventually(is_gone, within_s=LONG_S)


async def test_what_was_never_started_is_not_there(run: Path) -> None:
    assert detached.look(run) is None
    assert detached.send(run, signal.SIGKILL) is False
    assert await detached.kill(run, within_s=1)


async def test_its_end_is_written_down_with_code_and_time(run: Path) -> None:
    await start(run, "echo said; echo so >&2; exit 7")
    found = await over(run)
    assert found.code == 7
    assert found.at is not None
    log = run.parent / "log"
    assert log.read_text() == "said\nso\n"
    assert (mode_of(log), mode_of(run)) == (0o600, 0o700)


async def test_a_program_that_is_missing_ends_with_127(run: Path) -> None:
    await detached.start(["/nowhere/tart"], folder=run, log=run.parent / "log")
    assert (await over(run)).code == 127


async def test_a_folder_that_cannot_be_used_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostUnfit, match="was not started"):
        await start(tmp_path / "file" / "run", "exit 0")


async def test_it_outlives_an_agent_that_is_killed(run: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", STARTER, str(run.parent), "/bin/sh", "-c", "sleep 600"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
        timeout=LONG_S,
    )
    assert done.returncode == -signal.SIGKILL
    pid = await alive(run)
    assert os.getsid(pid) == pid, "a session of its own: the end of a terminal does not reach it"
    assert await detached.kill(run, within_s=LONG_S)
    await gone(pid)
    assert detached.look(run) == Over(None, None)


async def test_there_is_one_at_a_time(run: Path) -> None:
    await start(run, "sleep 600")
    with pytest.raises(StillRunning):
        await start(run, "exit 0")
    await detached.kill(run, within_s=LONG_S)
    await start(run, "exit 0")
    assert (await over(run)).code == 0


async def test_signals_reach_the_program_and_its_end_is_still_seen(run: Path) -> None:
    script = "trap 'echo told; exit 3' USR2; echo up; while :; do sleep 0.05; done"
    await start(run, script)
    await there(run.parent / "log")
    assert detached.send(run, signal.SIGUSR2)
    assert (await over(run)).code == 3
    # Only once it is there: before that its shell alone would hear, which does not heed it.
    await start(run, 'echo $$ >"$1"; exec sleep 600', str(run.parent / "there"))
    await there(run.parent / "there")
    assert detached.send(run, signal.SIGTERM)
    assert (await over(run)).code == 128 + signal.SIGTERM


async def test_killing_kills_the_whole_group(run: Path) -> None:
    await start(run, 'sleep 600 & echo $! >"$1"; wait', str(run.parent / "child"))
    child = int(await there(run.parent / "child"))
    assert await detached.kill(run, within_s=LONG_S)
    await gone(child)


async def test_what_it_leaves_behind_ends_with_it(run: Path) -> None:
    await start(run, 'sleep 600 & echo $! >"$1"', str(run.parent / "child"))
    child = int(await there(run.parent / "child"))
    assert (await over(run)).code == 0
    await gone(child)


async def test_a_program_whose_shell_was_killed_is_still_known_and_can_be_killed(run: Path) -> None:
    await start(run, 'echo $$ >"$1"; exec sleep 600', str(run.parent / "child"))
    child = int(await there(run.parent / "child"))
    shell = await alive(run)
    os.kill(shell, signal.SIGKILL)

    async def shell_is_gone() -> bool:
        detached.look(run)  # it is our child: somebody must take note of its end
        return not exists(shell)

    await eventually(shell_is_gone, within_s=LONG_S)
    assert isinstance(detached.look(run), Alive)
    assert await detached.kill(run, within_s=LONG_S)
    await gone(child)
    assert detached.look(run) == Over(None, None), "a killed one is not one that ended by itself"


async def test_a_recycled_pid_is_never_taken_for_it(run: Path) -> None:
    await start(run, "exit 0")
    assert (await over(run)).code == 0
    stranger = await asyncio.to_thread(_stranger)
    try:
        (run / "pid").write_text(f"{stranger.pid}\n")
        (run / "end").unlink()
        assert detached.look(run) == Over(None, None)
        assert detached.send(run, signal.SIGKILL) is False
        assert await detached.kill(run, within_s=1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def _stranger() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], start_new_session=True)  # noqa: S607 - any program does


async def test_a_host_that_lost_power_knows_no_end(run: Path) -> None:
    await start(run, "exit 0")
    await over(run)
    for half in ("", "1", "x\n"):
        (run / "end").write_text(half)
        assert detached.look(run) == Over(None, None)


async def test_a_hundred_of_them_cost_little(run: Path) -> None:
    """The shells are small: what a VM costs beside itself is multiplied by all VMs of a host."""
    if sys.platform != "linux":
        return
    await start(run, "sleep 600")
    pid = await alive(run)
    lines = text_of(Path(f"/proc/{pid}/smaps_rollup")).splitlines()
    private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    assert private < 1024, "KiB"
