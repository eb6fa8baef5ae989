"""Images are built on builders and not here: here it is seen that what builds them reads, and fits together."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
MACOS, LINUX, GUEST = (ROOT / "images" / name for name in ("macos", "linux", "guest"))
LAYERS = ("base", "xcode", "runner")
SCRIPTS = sorted(MACOS.glob("scripts/*.sh"))


def _program(name: str) -> str:
    """Return a linter that comes as a wheel."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"there is no {name} for this machine")
    return str(path)


def _lint(words: list[str], text: str = "") -> str:
    ran = subprocess.run(  # noqa: S603 - a linter
        words, input=text, capture_output=True, text=True, check=False, timeout=120
    )
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def _plain(value: object) -> Any:  # noqa: ANN401 - whatever a template says
    """Take the reader's marks away: strings keep their quotes there, and blocks say that they are blocks."""
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items() if not str(k).startswith("__")}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.strip('"') if isinstance(value, str) else value


def _template(layer: str) -> dict[str, Any]:
    with (MACOS / f"{layer}.pkr.hcl").open() as file:
        read: dict[str, Any] = _plain(hcl2.load(file))
    return read


def _variables(layer: str) -> dict[str, dict[str, Any]]:
    return {name: body for block in _template(layer)["variable"] for name, body in block.items()}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_template_reads_and_uses_exactly_the_variables_that_it_declares(layer: str) -> None:
    text = (MACOS / f"{layer}.pkr.hcl").read_text()
    assert set(re.findall(r"\bvar\.(\w+)", text)) == set(_variables(layer))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_template_builds_its_own_source_from_what_it_is_told(layer: str) -> None:
    template = _template(layer)
    ((kind, by_name),) = template["source"][0].items()
    source = by_name[layer]
    assert kind == "tart-cli"
    assert template["build"][0]["sources"] == [f"source.tart-cli.{layer}"]
    assert source["vm_base_name"] == "${var.from}"
    assert _variables(layer)["name"]["default"] == f"remuda-{layer}"
    assert "default" not in _variables(layer)["from"]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_template_runs_scripts_that_are_there_and_gives_them_what_they_read(layer: str) -> None:
    run: set[str] = set()
    for block in _template(layer)["build"][0]["provisioner"]:
        shell = block.get("shell")
        if shell is None:
            continue
        script = MACOS / shell["script"].removeprefix("${path.root}/")
        run.add(script.name)
        given = {each.partition("=")[0] for each in shell.get("environment_vars", [])}
        read = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]{2,})", script.read_text()))
        assert given <= read
        assert {name for name in read if not name.startswith("REMUDA_")} <= given | {"HOME"}
    assert run


def test_the_runner_layer_brings_the_guest_runner_of_this_repository() -> None:
    files = [b["file"] for b in _template("runner")["build"][0]["provisioner"] if "file" in b]
    sources = [
        Path(each.removeprefix("${path.root}/")) for file in files for each in file["sources"]
    ]
    assert {(MACOS / each).resolve() for each in sources} == {
        GUEST / "remuda-guest",
        GUEST / "dev.remuda.guest.plist",
    }


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.name))
def test_scripts_pass_shellcheck_and_can_be_run(path: Path) -> None:
    assert _lint([_program("shellcheck"), "--shell=sh", str(path)]) == ""
    assert path.stat().st_mode & 0o111


def test_the_dockerfile_passes_its_linter() -> None:
    assert _lint([_program("hadolint"), str(LINUX / "Dockerfile")]) == ""


def test_the_linux_image_is_not_root_and_has_the_guest_runner() -> None:
    lines = (LINUX / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER 1001:1001"]
    copied = [line.split()[-2:] for line in lines if line.startswith("COPY ")]
    assert copied == [["guest/remuda-guest", "/usr/local/bin/remuda-guest"]]
    assert (ROOT / "images" / copied[0][0]).exists()
    assert "ARG RUNNER_VERSION" in lines
    assert "ARG RUNNER_SHA256" in lines


def test_the_workflow_is_one_by_githubs_own_schema() -> None:
    words = [_program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    assert _lint([*words, str(MACOS / "workflow.yml")]) == ""


def _steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load((MACOS / "workflow.yml").read_text())
    steps: list[dict[str, Any]] = workflow["jobs"]["build"]["steps"]
    return steps


def test_what_the_workflow_runs_passes_shellcheck_and_is_there() -> None:
    runs = [step["run"] for step in _steps() if "run" in step]
    assert {
        run: _lint([_program("shellcheck"), "--shell=bash", "-"], run) for run in runs
    } == dict.fromkeys(runs, "")
    named = {name for run in runs for name in re.findall(r"scripts/([\w-]+\.sh)", run)}
    assert named == {"reclaim-disk.sh", "restore-nvram.sh", "push.sh"}
    assert named <= {path.name for path in SCRIPTS}


def test_the_workflow_makes_room_first_and_deletes_the_vm_whatever_happens() -> None:
    steps = _steps()
    assert "reclaim-disk.sh" in steps[1]["run"]
    assert steps[-1]["if"] == "always()"
    assert "tart delete" in steps[-1]["run"]


def test_no_expression_of_the_workflow_is_inside_of_a_script() -> None:
    """What a person types into the form would run as a command there."""
    assert [step["run"] for step in _steps() if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("layer", LAYERS)
def test_the_workflow_gives_each_layer_the_variables_that_have_no_default(layer: str) -> None:
    (build,) = [step["run"] for step in _steps() if step.get("name") == "Build"]
    part = build.partition(f"{layer})")[2].partition(";;")[0]
    given = {"from", *re.findall(r'-var "(\w+)=', part)}
    assert given == {name for name, body in _variables(layer).items() if "default" not in body}


def test_the_page_says_that_nothing_of_this_is_built_here() -> None:
    page = (ROOT / "docs/howto/build-images.md").read_text()
    assert "not built" in page
    assert [path.name for path in SCRIPTS if path.name not in page] == []
