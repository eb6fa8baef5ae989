"""Every reason that the operator or the agent can give is on the page about them, and the page has no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from remuda.sim.scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/conditions-and-events.md"
CODE = sorted((ROOT / "src/remuda/pools").rglob("*.py"))

CAMEL = re.compile(r"(?:[A-Z][a-z]+){2,}")
"""A reason of two words or more; of strings in the operator's code, only reasons look like that."""
ONE_WORD = {"Unschedulable"}


def said_in_code() -> set[str]:
    """Return the reasons that stand in the code: constants that look like one, and those of conditions."""
    trees = [ast.parse(file.read_text()) for file in CODE]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    found = {text for text in texts if CAMEL.fullmatch(text)} | (ONE_WORD & texts)
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name == "Wanted" and call.args:
            found |= {_text(argument) for argument in (call.args[0], call.args[2])}
        found |= {
            _text(k.value) for k in call.keywords if name == "Condition" and k.arg == "reason"
        }
    return found - {""}


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def said_on_page() -> set[str]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [cell for row in rows for cell in row.split("|")[1:4]]
    words = {word for cell in cells for word in re.findall(r"`([A-Za-z]+)`", cell)}
    return {word for word in words if word[0].isupper()}


def test_the_page_is_the_code() -> None:
    assert said_on_page() == said_in_code()


@pytest.mark.parametrize(
    "reason", ["ScaledUp", "Warm", "StartsFailed", "StartTimedOut", "RollStuck"]
)
def test_the_search_finds(reason: str) -> None:
    assert reason in said_in_code()


AGENT_PAGE = ROOT / "docs/reference/agent.md"
AGENT_CODE = sorted((ROOT / "src/remuda/agent").rglob("*.py"))
AGENT_REASON = re.compile(r"(?:[A-Z][a-z]+|VM){2,}")
AGENT_ONE_WORD = {"Completed", "Error", "Cancelled", "Deleted"}
NO_REASONS = {"KeeperParts", "NoSchedule"}
"""They look like one."""
TYPES = {"ContainersReady", "DiskPressure", "MemoryPressure", "PIDPressure", "Ready"}
"""Of conditions."""


def said_by_the_agent() -> set[str]:
    nodes = [node for file in AGENT_CODE for node in ast.walk(ast.parse(file.read_text()))]
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    found = {text for text in texts if AGENT_REASON.fullmatch(text)} | (AGENT_ONE_WORD & texts)
    return found - NO_REASONS - TYPES


def test_the_page_about_the_agent_is_the_code() -> None:
    page = AGENT_PAGE.read_text()
    section = page[page.index("### Reasons") : page.index("## The data directory")]
    words = set(re.findall(r"`([A-Za-z]+)`", section))
    assert words - TYPES == said_by_the_agent()


@pytest.mark.parametrize("reason", ["CreatingVM", "VMRefused", "TokenRefused", "ImageStaged"])
def test_the_search_in_the_agent_finds(reason: str) -> None:
    assert reason in said_by_the_agent()


def test_the_page_about_the_simulator_has_every_scenario_and_every_break() -> None:
    page = (ROOT / "docs/explanation/simulation.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    told = {row[1].strip(" `"): set(re.findall(r"`(\w+)`", row[3])) for row in rows}
    assert told == {name: set(scenario.breaks) for name, scenario in SCENARIOS.items()}
