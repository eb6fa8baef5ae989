"""``remuda top`` as people have it: at a terminal and in a pipe, on a fleet that loses its server and gets it back."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from remuda.cli.exits import FAILED, OK, TERMINATED
from tests.support.terminals import at_terminal
from tests.support.trees import Tree, a_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REMUDA = (sys.executable, "-m", "remuda.cli.main")
ALTERNATE = b"\x1b[?1049h"
"""A terminal's other screen: a program that took it gives it back."""
BACK = b"\x1b[?1049l"


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    with a_tree("--vms=2") as made:
        made.up()
        yield made


async def test_a_fleet_is_looked_at_explained_paused_and_found_again(tree: Tree) -> None:
    job = await tree.post("sleep 600")
    await tree.until_job(job, "running")
    command = [*REMUDA, "top", f"--data={tree.data}", "--every=0.5"]  # a server is not back sooner
    with at_terminal(command, size=(120, 40)) as terminal:
        await terminal.says("healthy", "Pools 1", "Jobs 1", "default", job, "Events")

        terminal.press("e")
        await terminal.says("Evidence:", "Esc closes")
        terminal.mark()
        terminal.press("q")  # closes the panel, which lay above this
        await terminal.says("by longest queued")
        terminal.press("p")
        await terminal.says("Pause the rollout of pool default?")
        terminal.press("y")
        await terminal.says("paused")

        terminal.mark()
        tree.kill("server")
        await terminal.says("STALE")
        await tree.until_well()
        terminal.mark()
        await terminal.says("healthy")

        terminal.press("q")
        assert await terminal.ended() == OK
        assert terminal.raw.count(ALTERNATE) == terminal.raw.count(BACK) == 1
        assert b"Traceback" not in terminal.raw
    assert '"paused": true' in tree.remuda("pools", "default", "-o", "json").said

    once = tree.remuda("top")
    assert once.code == OK
    assert "\x1b" not in once.said
    assert [word for word in ("healthy", "paused", job, "Hosts 1") if word not in once.said] == []


async def test_a_terminal_is_left_as_it_was_found_by_whoever_is_told_to_end(tree: Tree) -> None:
    command = [*REMUDA, "top", f"--data={tree.data}"]
    with at_terminal(command, env={"NO_COLOR": "1"}) as terminal:
        await terminal.says("healthy", "Pools 1")
        terminal.process.send_signal(signal.SIGTERM)
        assert await terminal.ended() == TERMINATED
        assert terminal.raw.count(ALTERNATE) == terminal.raw.count(BACK) == 1
        # Bold and reverse are no colours; 30 to 49 and 90 to 107 are.
        assert b"\x1b[38;" not in terminal.raw
        assert b"\x1b[48;" not in terminal.raw


def test_where_no_fleet_is_that_is_said(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603 - our own command
        [*REMUDA, "top", f"--data={tmp_path}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == FAILED
    assert "It is not known where the fleet is" in done.stderr
