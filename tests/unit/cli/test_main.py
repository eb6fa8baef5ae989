"""How any command ends that is interrupted, or whose output was closed before it began."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import click
from remuda.cli import main

@click.command()
def stops():
    raise KeyboardInterrupt

main.COMMANDS["stops"] = main._Command("__main__", "stops", "Stops.")
main.main(["stops"])
"""


def test_a_command_that_is_interrupted_ends_as_shells_expect_it() -> None:
    ended = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=90, check=False
    )
    assert (ended.returncode, ended.stderr.strip()) == (130, "remuda: interrupted.")


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_output_that_nobody_takes_is_no_fault(closed: str) -> None:
    script = f'"$1" -P -m remuda.cli.main completion bash {closed}'
    ended = subprocess.run(  # noqa: S603 - our own command
        ["/bin/sh", "-c", script, "sh", sys.executable],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
