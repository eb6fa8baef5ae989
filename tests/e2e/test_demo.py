"""The demo as people run it: what it says is true, it can fail, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.adapters import detached
from remuda.adapters.process.leftovers import kill_leftovers
from tests.support.agents import kill_all_below, processes_below
from tests.support.postgres import private_folder
from tests.support.processes import pause, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 400.0
"""More than all that the demo itself waits for on a busy machine."""
GONE_S = 90.0
"""What watches over PostgreSQL for a server that was killed ends half a minute later."""
JOBS, RUNNERS = 6, 4


@dataclass(frozen=True, slots=True)
class Played:
    """A demo in a temporary folder of its own."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text(errors="replace")

    @property
    def place(self) -> Path | None:
        """Return the folder that it made for itself, while that is there."""
        return next((self.folder / "tmp").glob("remuda-demo-*"), None)

    def until(self, seen: Callable[[], bool]) -> None:
        deadline = seconds() + WITHIN_S
        while not seen():
            assert self.process.poll() is None, f"it ended\n{self.said}"
            assert seconds() < deadline, f"it goes on and on\n{self.said}"
            pause(0.02)

    def ended(self) -> int:
        """Wait for its end, and until nothing of it runs; returns its exit code."""
        code = self.process.wait(WITHIN_S)
        deadline = seconds() + GONE_S
        while (left := processes_below(self.folder)) and seconds() < deadline:
            pause(0.2)
        assert left == {}, self.said
        return code


@pytest.fixture
def play() -> Iterator[Callable[[], Played]]:
    """Return what starts a demo; at the end all that is left of it is killed."""
    begun: list[Played] = []
    make = shutil.which("make")
    assert make is not None

    def begin() -> Played:
        folder = private_folder()
        folder.chmod(0o755)  # as root, PostgreSQL runs as somebody else, who must get through
        (folder / "tmp").mkdir(mode=0o755)
        small = f"--jobs={JOBS} --runners={RUNNERS}"
        with (folder / "said").open("wb") as said:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [make, "demo", f"DEMO={small}"],
                cwd=ROOT,
                stdout=said,
                stderr=said,
                env={**_environment(), "TMPDIR": str(folder / "tmp")},
                start_new_session=True,
            )
        begun.append(Played(folder, process))
        return begun[-1]

    try:
        yield begin
    finally:
        for played in begun:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(played.process.pid, signal.SIGKILL)
            played.process.wait(WITHIN_S)
            kill_all_below(played.folder)
            shutil.rmtree(played.folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    """Return ours, without what a make that runs these tests tells the ones below it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}


def _kill_a_job(played: Played) -> None:
    """Kill the processes of a runner with a job, as an unlucky host would."""
    played.until(lambda: "jobs run, each on its own runner" in played.said)
    assert played.place is not None
    vms = played.place / "fleet/agent/process/vms"
    script = next(iter(vms.glob("**/script")))  # only a guest that has its job has one
    vm = script.parents[2]
    assert detached.send(vm / "run", signal.SIGKILL)
    while kill_leftovers(vm):  # a job has a process group of its own
        pass


def test_the_demo_shows_that_no_job_is_lost_and_says_so_only_if_it_is_true(
    play: Callable[[], Played],
) -> None:
    good, hurt = play(), play()  # at once: both mostly wait
    _kill_a_job(hurt)

    assert good.ended() == 0, good.said
    *told, last = good.said.splitlines()
    assert re.fullmatch(
        rf"demo: {JOBS} jobs ok, 0 lost, 0 killed; roll max unavailable [01] of cap 1", last
    )
    assert told[-1].startswith("The demo took "), good.said
    times = r" +\d+\.\d\d" * 5
    for number in range(1, JOBS + 1):
        row = rf" 0{number}  demo-\w+ +(process|second|-) +{times}  ok"
        assert any(re.fullmatch(row, line) for line in told), f"no row of job {number}\n{good.said}"
    for act in ("host process behind demo-", "rolled to second", "dispatch server", "host's agent"):
        assert sum("! " in line and act in line for line in told) == 1, good.said
    assert good.place is None

    assert hurt.ended() != 0, hurt.said
    assert f"\ndemo: {JOBS - 1} jobs ok, 0 lost, 1 killed; " in hurt.said
    assert "is killed: it began and did not end" in hurt.said
    kept = hurt.place
    assert kept is not None
    assert f"kept for you: {kept}" in hurt.said
    assert (kept / "fleet/logs/server.log").exists()


def test_the_demo_leaves_nothing_behind_when_it_is_stopped(play: Callable[[], Played]) -> None:
    stopped = play()

    def grows() -> bool:
        place = stopped.place
        return place is not None and (place / "fleet/postgres").exists()

    stopped.until(grows)
    os.killpg(stopped.process.pid, signal.SIGINT)

    assert stopped.ended() != 0, stopped.said
    assert "you stopped the demo" in stopped.said
    assert stopped.place is None
