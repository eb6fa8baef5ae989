"""The habits that a linter cannot check: sizes, promises left in comments, mocks, pages that lead nowhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6


@cache
def _tracked(*suffixes: str) -> tuple[Path, ...]:
    """Return the project's own files: what git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - git from PATH
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    paths = (ROOT / name for name in sorted(listed))
    return tuple(p for p in paths if p.suffix in suffixes and p.is_file())


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_the_files_to_check_are_found() -> None:
    names = {_name(path) for path in _tracked(".py", ".md")}
    assert {"src/remuda/model/errors.py", "tests/tidy/test_tidy.py", "README.md"} <= names


def test_no_file_is_too_long_to_hold_in_mind() -> None:
    long = {
        _name(p): n for p in _tracked(".py") if (n := p.read_text().count("\n")) > FILE_LINES_MAX
    }
    assert long == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{_name(path)}:{f.lineno} {f.name}: {size} lines"
        for path in _tracked(".py")
        for f in _functions(path)
        if (size := (f.end_lineno or f.lineno) - f.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_no_function_takes_a_bag_of_parameters() -> None:
    # A port's method may say several separate facts about one call; its keyword-only ones do not count.
    bags = [
        f"{_name(path)}:{f.lineno} {f.name}"
        for path in _tracked(".py")
        for f in _functions(path)
        if len([a for a in f.args.posonlyargs + f.args.args if a.arg not in {"self", "cls"}])
        > PARAMETERS_MAX
    ]
    assert bags == []


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        pytest.param(
            r"\b(TODO|FIXME|XXX|HACK)\b", "do it, or file an issue", id="no promise in a comment"
        ),
        pytest.param(
            r"import unittest|from unittest|pytest_mock|MagicMock|monkeypatch",
            "use the fakes",
            id="no mocks",
        ),
        pytest.param(
            r"#\s*type:\s*ignore(?!\[)", "name the error code", id="no blanket type ignore"
        ),
        pytest.param(
            r"#\s*noqa(?!: [A-Z0-9, ]+ - \S)", "name the rule and the reason", id="no bare noqa"
        ),
        pytest.param(
            r"(?<![\w./-])/(work|farm)/|/root/\.", "write no machine's path", id="no machine path"
        ),
        pytest.param(
            r"mark\.(skip|xfail)\b", "mend it, or delete it", id="no test that is switched off"
        ),
    ],
)
def test_the_code_is_free_of(pattern: str, instead: str) -> None:
    this_file = Path(__file__).resolve()
    found = [
        f"{_name(path)}:{number}: {line.strip()}"
        for path in _tracked(".py", ".sh", ".toml", ".yaml", ".yml")
        if path != this_file
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert found == [], f"{instead}: {found}"


def test_links_between_our_pages_lead_somewhere() -> None:
    broken = [
        f"{_name(page)}: {target}"
        for page in _tracked(".md")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_decision_records_are_numbered_without_gaps_and_have_every_part() -> None:
    records = sorted(
        p for p in _tracked(".md") if p.parent == ROOT / "docs/adr" and p.name[0].isdigit()
    )
    assert [int(p.name[:4]) for p in records] == list(range(1, len(records) + 1))
    wanted = ["Context", "Decision", "Alternatives", "Consequences", "What would change our mind"]
    missing = {
        _name(p): gaps
        for p in records
        if (gaps := [w for w in wanted if f"## {w}" not in p.read_text()])
    }
    assert missing == {}
    index = (ROOT / "docs/adr/README.md").read_text()
    assert re.findall(r"\]\((\d{4}-[^)]+)\)", index) == [p.name for p in records]


def test_every_page_is_in_the_index_of_its_folder() -> None:
    pages = [p for p in _tracked(".md") if p.parent.parent == ROOT / "docs"]
    lost = [
        _name(page)
        for page in pages
        if page.name != "README.md"
        and (index := page.parent / "README.md").exists()
        and f"({page.name})" not in index.read_text()
    ]
    assert lost == []


def test_the_changelog_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", h) for h in headings[1:])
    sections = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert sections <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_generated_files_are_what_the_generator_writes() -> None:
    answer = subprocess.run(
        [sys.executable, "tools/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_make_target_in_our_pages_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {
        (_name(page), target)
        for page in _tracked(".md")
        for target in re.findall(r"`make ([a-z0-9-]+)", page.read_text())
    }
    assert {(page, target) for page, target in used if target not in targets} == set()
