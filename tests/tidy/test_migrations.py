"""The linter of migrations notices what it is there for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOOD = "CREATE TABLE jobs (id bigint PRIMARY KEY);\n"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own tool
        [sys.executable, str(ROOT / "tools" / "lint_migrations.py"), str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_shipped_migrations_are_clean() -> None:
    shipped = ROOT / "src" / "remuda" / "adapters" / "postgres" / "migrations"
    answer = lint(shipped)

    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("second", "word"),
    [
        pytest.param("CREATE INDEX i ON jobs (id);\n", "concurrent", id="an index that locks"),
        pytest.param(
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON jobs (id);\n",
            "transaction",
            id="a concurrent index inside a transaction",
        ),
        pytest.param("ALTER TABLE jobs RENAME id TO key;\n", "renam", id="a column renamed"),
    ],
)
def test_a_migration_is_refused_for(second: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "0001_jobs.sql").write_text(GOOD)
    (tmp_path / "0002_more.sql").write_text(second)
    answer = lint(tmp_path)

    assert answer.returncode != 0
    assert word in answer.stdout.lower()


def test_a_concurrent_index_outside_a_transaction_is_fine(tmp_path: Path) -> None:
    (tmp_path / "0001_jobs.sql").write_text(GOOD)
    (tmp_path / "0002_more.sql").write_text(
        "-- remuda: no transaction\n"
        "DROP INDEX CONCURRENTLY IF EXISTS i;\n"
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON jobs (id);\n"
    )
    answer = lint(tmp_path)

    assert answer.returncode == 0, answer.stdout


def test_a_number_that_is_missing_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "0002_jobs.sql").write_text(GOOD)

    assert "0002_jobs where 0001" in lint(tmp_path).stdout
