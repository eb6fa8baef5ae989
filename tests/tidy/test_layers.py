"""The import contracts must catch what they are there for: each rule is broken in a copy of the tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _lint(tree: Path) -> subprocess.CompletedProcess[str]:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(  # noqa: S603 - our own linter
        [lint_imports, "--no-cache"],
        cwd=tree,
        env={"PYTHONPATH": str(tree / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def _write(tree: Path, module: str, text: str) -> None:
    path = tree / "src" / (module.replace(".", "/") + ".py")
    for package in [p for p in path.parents if (tree / "src") in p.parents]:
        package.mkdir(parents=True, exist_ok=True)
        init = package / "__init__.py"
        if not init.exists():
            init.write_text('"""A package of this test."""\n')
    path.write_text(text)


def test_the_tree_as_it_is_keeps_its_layers(tree: Path) -> None:
    answer = _lint(tree)
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize(
    ("module", "text"),
    [
        pytest.param("remuda.pools.decide.x", "import asyncio\n", id="a decision imports asyncio"),
        pytest.param(
            "remuda.pools.decide.y",
            "from os import environ\n",
            id="a decision reads the environment",
        ),
        pytest.param("remuda.model.x", "import time\n", id="the model reads a clock"),
        pytest.param(
            "remuda.kube.x", "import remuda.ports.kube\n", id="the dialect imports a port"
        ),
        pytest.param(
            "remuda.control.x", "import remuda.adapters.system\n", id="machinery imports an adapter"
        ),
        pytest.param(
            "remuda.standalone.x", "import remuda.adapters.system\n", id="siblings know each other"
        ),
        pytest.param(
            "remuda.pools.decide.z",
            "import remuda.control.queue\n",
            id="a decision reaches asyncio by a detour",
        ),
    ],
)
def test_breaking_a_layer_is_refused(tree: Path, module: str, text: str) -> None:
    _write(tree, module, text)
    answer = _lint(tree)
    assert answer.returncode == 1, answer.stdout
    assert "BROKEN" in answer.stdout


def test_one_process_may_not_know_another(tree: Path) -> None:
    _write(tree, "remuda.pools.loop", "")
    _write(tree, "remuda.agent.loop", "import remuda.pools.loop\n")
    answer = _lint(tree)
    assert answer.returncode == 1, answer.stdout
    assert "remuda.agent.loop -> remuda.pools.loop" in answer.stdout
