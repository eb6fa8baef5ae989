"""The tutorial's commands, run as they stand on the page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.kubectl import found

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs/tutorial/first-run.md"


def _commands(page: Path) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


PREAMBLE = f"""
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
make() {{ command make -C {ROOT} "$@"; }}
"""


def test_the_tutorial_works_as_printed(tmp_path: Path) -> None:
    for name in ("charts", ".venv"):  # what the commands write stays out of the checkout
        (tmp_path / name).symlink_to(ROOT / name)
    kubectls = found()
    if not kubectls:
        pytest.skip("no kubectl: run `make control-plane`, or install one")
    path = os.pathsep.join([str(Path(next(iter(kubectls.values()))).parent), os.environ["PATH"]])
    bash = shutil.which("bash")
    assert bash is not None
    answer = subprocess.run(  # noqa: S603 - our own page
        [bash, "-c", PREAMBLE + "\n".join(_commands(TUTORIAL))],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    for said in (
        "ok: S2 no kill, S3 caps, S8 fencing",
        "exit 1, as it should be",
        "runnerpool.remuda.dev/mac created",
        "mac    0",
        "Set spec.autoscaling.maxReplicas",
    ):
        assert said in answer.stdout + answer.stderr
