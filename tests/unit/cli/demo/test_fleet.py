"""The end of the demo's fleet where nothing ends when it is asked: it is killed, and said so."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.adapters import detached
from remuda.adapters.process.leftovers import MARKER
from remuda.adapters.system import SystemClock
from remuda.cli.demo.command import within
from remuda.cli.demo.ending import kill_all
from remuda.cli.demo.fleet import DemoFailed, Fleet
from remuda.cli.tree.folder import prepare
from remuda.cli.tree.parts import AGENT, SERVER
from remuda.cli.tree.runs import Run
from tests.support.agents import kill_all_below, processes_below
from tests.support.eventually import eventually
from tests.support.postgres import private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STUBBORN = ["/bin/sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"]


@pytest.fixture
def place() -> Iterator[Path]:
    folder = private_folder()
    try:
        yield folder
    finally:
        kill_all_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


async def _stubborn_parts(fleet: Fleet) -> None:
    """Start two parts and a VM that do not end when they are asked."""
    for part in (SERVER, AGENT):
        await Run(fleet.folder, part).start(STUBBORN, os.environ)
    vm = fleet.folder.agent / "process" / "vms" / "remuda-a"
    vm.mkdir(parents=True)
    env = {**os.environ, MARKER: str(vm)}
    await detached.start(STUBBORN, folder=vm / "run", log=vm / "output", env=env)


async def _gone(place: Path) -> dict[int, str]:
    async def left() -> dict[int, str]:
        return processes_below(place)

    return await eventually(left, lambda found: not found, within_s=60.0)


async def test_what_does_not_end_is_killed_and_that_is_trouble(place: Path) -> None:
    fleet = Fleet(place, 4, SystemClock(), down_s=0.5)
    prepare(fleet.folder)
    await _stubborn_parts(fleet)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    fleet.adopt(await asyncio.create_subprocess_exec(sys.executable, "-c", deaf, f"{place}/up"))

    trouble = await fleet.down()

    assert "did not end within" in trouble
    for name in ("remuda up", SERVER, AGENT, "remuda-a"):
        assert name in trouble
    assert await _gone(place) == {}


async def test_what_has_ended_is_not_killed(place: Path) -> None:
    fleet = Fleet(place, 4, SystemClock())
    prepare(fleet.folder)
    assert await kill_all(fleet.folder, SystemClock()) == ()


async def test_a_play_that_takes_too_long_says_what_it_waited_for(place: Path) -> None:
    fleet = Fleet(place, 4, SystemClock())
    fleet.awaits = "2 of 4 runners are warm"

    with pytest.raises(DemoFailed, match="not over within 0s") as failed:
        await within(0.01, fleet, asyncio.sleep(600))

    assert "2 of 4 runners are warm" in failed.value.why


async def test_a_time_out_of_the_play_itself_stays_what_it_is(place: Path) -> None:
    async def play() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await within(600, Fleet(place, 4, SystemClock()), play())
