"""
SQL by name. It lives in ``queries/*.sql``, in blocks that begin with ``-- name: claim``, and is read once.

A test prepares every block against the migrated schema and finds those that nobody uses.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)[ \t]*$", re.MULTILINE)


def query(name: str) -> str:
    """Return the statement of that name. A name that does not exist is a bug."""
    found = all_queries()
    assert name in found, f"no query is named {name}; there are {', '.join(sorted(found))}"
    return found[name]


@cache
def all_queries() -> Mapping[str, str]:
    """Read every block of every file; a name stands for one statement only."""
    folder = resources.files("remuda.adapters.postgres") / "queries"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    found: dict[str, str] = {}
    for file in files:
        for name, statement in parse(file.read_text(encoding="utf-8")).items():
            assert name not in found, f"two queries are named {name}, one is in {file.name}"
            found[name] = statement
    return found


def parse(text: str) -> dict[str, str]:
    """Cut a file into its named statements."""
    before, *rest = _NAME.split(text)
    stray = [line for line in before.splitlines() if line.strip() and not line.startswith("--")]
    assert not stray, f"SQL before the first name: {stray[0]}"
    found: dict[str, str] = {}
    for name, body in zip(rest[::2], rest[1::2], strict=True):
        assert name not in found, f"two queries are named {name}"
        statement = body.strip().removesuffix(";").strip()
        assert statement, f"the query {name} is empty"
        found[name] = statement
    return found
