"""The commands of the tutorial and of the pages about operator, dispatch and agent, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.agents import kill_all_below, processes_below
from tests.support.kubectl import found
from tests.support.postgres import private_folder
from tests.support.processes import free_port, pause, seconds

if TYPE_CHECKING:
    from tests.support.control_plane import RealControlPlane

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs/tutorial/first-run.md"
SIMULATOR = ROOT / "docs/tutorial/simulator.md"
OPERATOR = ROOT / "docs/howto/run-the-operator.md"
SERVER = ROOT / "docs/howto/run-the-server.md"
AGENT = ROOT / "docs/howto/run-an-agent.md"
ONE_MACHINE = ROOT / "docs/howto/one-machine.md"
CLUSTER = ROOT / "docs/howto/cluster.md"


def _commands(page: Path) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


PREAMBLE = f"""
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
make() {{ command make -C {ROOT} "$@"; }}
"""


def _run(commands: str, folder: Path) -> str:
    """Run commands as a person would, in a folder of their own; return all that they print."""
    for name in ("charts", ".venv"):  # what the commands write stays out of the checkout
        (folder / name).symlink_to(ROOT / name)
    kubectls = found()
    if not kubectls:
        pytest.skip("no kubectl: run `make control-plane`, or install one")
    kubectl = Path(next(iter(kubectls.values()))).parent
    path = os.pathsep.join([str(kubectl), str(ROOT / ".venv/bin"), os.environ["PATH"]])
    bash = shutil.which("bash")
    assert bash is not None
    answer = subprocess.run(  # noqa: S603 - our own page
        [bash, "-c", PREAMBLE + commands],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout + answer.stderr


def _passable() -> Path:
    folder = private_folder()
    folder.chmod(0o755)  # as root, PostgreSQL runs as somebody else, who must get through
    return folder


def _nothing_runs(folder: Path) -> None:
    deadline = seconds() + 60
    while (left := processes_below(folder)) and seconds() < deadline:
        pause(0.2)
    assert left == {}


def test_the_tutorial_works_as_printed() -> None:
    demo, *rest = _commands(TUTORIAL)
    assert demo == "make demo\n"  # which has a test of its own
    folder = _passable()
    try:
        printed = _run("\n".join(rest), folder)
        for said in (
            "Remuda is up.",
            "All is well",
            "hello from ",
            "it returned 7",
            "left-behind",
            "runnerpool.remuda.dev/default",
            "pod/default-",
            "node/",
            "maxConcurrentPercent",
            "runnerpool.remuda.dev/default patched",
            "two\n",
            "Set spec.autoscaling.maxReplicas",
            "refused\n",
            "nobody tends it",
            "still here\n",
            "It is down.",
        ):
            assert said in printed, f"nobody said {said!r}\n{printed}"
        assert printed.count("left-behind") == 1, printed
        _nothing_runs(folder)
    finally:
        kill_all_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


def test_the_simulator_is_broken_as_printed(tmp_path: Path) -> None:
    printed = _run("\n".join(_commands(SIMULATOR)), tmp_path)
    for said in ("ok: S2 no kill, S3 caps, S8 fencing", "exit 1, as it should be"):
        assert said in printed


def test_the_operator_is_run_as_printed(tmp_path: Path) -> None:
    commands = "\n".join(_commands(OPERATOR))
    assert ":9464" in commands
    printed = _run(commands.replace(":9464", f":{free_port()}"), tmp_path)
    for said in (
        "leading\n",
        "runnerpool.remuda.dev/mac condition met",
        "Fleet minis has no healthy node",
        'runnerpool.remuda.dev "mac" deleted',
    ):
        assert said in printed
    assert "stopped" in (tmp_path / "controller.log").read_text()


def test_dispatch_is_run_as_printed() -> None:
    folder = _passable()
    commands = "\n".join(_commands(SERVER))
    assert ":8080" in commands
    try:
        printed = _run(commands.replace(":8080", f":{free_port()}"), folder)
        for said in (
            "ready\n",
            "alice   operate   good",
            '"state":"queued"',
            '"why":"runners_missing"',
            '"outcome":"cancelled"',
        ):
            assert said in printed
        assert "stopped" in (folder / "server.log").read_text()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_an_agent_is_run_as_printed() -> None:
    folder = _passable()
    commands = "\n".join(_commands(AGENT))
    for port in (":8080", ":9464", ":9465"):
        assert port in commands
        commands = commands.replace(port, f":{free_port()}")
    try:
        printed = _run(commands, folder)
        for said in (
            "ready\n",
            "runnerpool.remuda.dev/demo created",
            "1/1",
            "hello from ",
            "JobDelivered",
            'runnerpool.remuda.dev "demo" deleted',
        ):
            assert said in printed
        assert "stopped" in (folder / "agent.log").read_text()
        assert list((folder / "agent/records/vms").iterdir()) == []
    finally:
        kill_all_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_fleet_on_one_machine_is_run_as_printed() -> None:
    folder = _passable()
    try:
        printed = _run("\n".join(_commands(ONE_MACHINE)), folder)
        for said in (
            "Remuda is up.",
            "WITHOUT ISOLATION",
            "All is well",
            "hello from ",
            "runnerpool.remuda.dev/default patched",
            "exit 1: nobody tends it",
            "It is down.",
        ):
            assert said in printed
        _nothing_runs(folder)
    finally:
        kill_all_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


def test_the_files_for_a_cluster_are_taken_by_a_real_api_server(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    printed = CLUSTER.read_text()
    real_control_plane.kubectl("create", "namespace", "pages")
    for name in ("operator-rbac", "server-rbac", "agent-rbac", "cluster"):
        assert f"-f docs/howto/{name}.yaml" in printed
        file = tmp_path / f"{name}.yaml"
        text = (CLUSTER.parent / file.name).read_text()
        file.write_text(text.replace("namespace: remuda", "namespace: pages"))
        said = real_control_plane.kubectl(
            "apply", "--dry-run=server", "--validate=strict", f"--filename={file}"
        )
        assert said.count("(server dry run)") == text.count("\nkind: "), said
