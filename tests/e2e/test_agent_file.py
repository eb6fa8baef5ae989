"""The agent as one file: built from this checkout for this machine, and run from a folder where nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "tools/build_agent.py"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("agent") / "remuda-agent"
    ran = subprocess.run(  # noqa: S603 - our own tool
        [sys.executable, str(BUILD), "--into", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    assert str(file) in ran.stdout
    return file


def _run(agent: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it as launchd does: from its path, with next to nothing in the environment."""
    return subprocess.run(  # noqa: S603 - what was just built
        [str(agent), *words],
        cwd=agent.parent,
        env={
            "HOME": str(agent.parent),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_file_is_the_agent_with_all_that_it_needs(agent: Path) -> None:
    assert agent.stat().st_mode & 0o777 == 0o755
    ran = _run(agent, "agent", "--help")
    assert ran.returncode == 0, ran.stderr
    assert "Run VMs for the Pods that are bound to this host" in ran.stdout


def test_it_refuses_a_bad_option_as_the_command_does(agent: Path) -> None:
    ran = _run(agent, "agent", "--no-such-option")
    assert ran.returncode == 2
    assert "--no-such-option" in ran.stderr
