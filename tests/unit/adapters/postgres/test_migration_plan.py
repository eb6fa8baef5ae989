from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.adapters.postgres.migration_plan import (
    Applied,
    Fault,
    Migration,
    migrations_of,
    plan,
)

ONE = Migration(1, "jobs", "CREATE TABLE jobs ()")
TWO = Migration(2, "claims", "CREATE TABLE claims ()")
THREE = Migration(3, "limits", "CREATE TABLE limits ()")


def applied(migration: Migration, sql: str | None = None) -> Applied:
    ran = Migration(migration.number, migration.name, migration.sql if sql is None else sql)
    return Applied(ran.number, ran.name, ran.sha256)


@pytest.mark.parametrize(
    ("rows", "files", "steps"),
    [
        pytest.param([], [], (), id="nothing is to be done with nothing"),
        pytest.param([], [ONE, TWO], (ONE, TWO), id="an empty database gets everything in order"),
        pytest.param([], [TWO, ONE], (ONE, TWO), id="the order of files does not matter"),
        pytest.param([applied(ONE)], [ONE, TWO], (TWO,), id="what was run is not run again"),
        pytest.param([applied(TWO), applied(ONE)], [ONE, TWO], (), id="rows come in any order"),
    ],
)
def test_the_plan_is(
    rows: list[Applied], files: list[Migration], steps: tuple[Migration, ...]
) -> None:
    assert plan(rows, files) == steps


@pytest.mark.parametrize(
    ("rows", "files", "why"),
    [
        pytest.param(
            [applied(ONE, "CREATE TABLE other ()")],
            [ONE, TWO],
            "0001_jobs is not what was run",
            id="a file that was changed after it was run stops everything",
        ),
        pytest.param(
            [applied(ONE), applied(TWO)],
            [ONE],
            "has migration 0002_claims, this version ends at 0001",
            id="a database of a newer version is left alone",
        ),
        pytest.param(
            [applied(ONE)],
            [],
            "this version ends at 0000",
            id="a version without migrations leaves a migrated database alone",
        ),
        pytest.param(
            [applied(ONE), applied(THREE)],
            [ONE, TWO, THREE],
            "lacks migration 0002_claims but has 0003_limits",
            id="a hole in what was run stops everything",
        ),
        pytest.param(
            [applied(TWO)],
            [ONE, TWO],
            "lacks migration 0001_jobs",
            id="a database without the first migration is not touched",
        ),
    ],
)
def test_no_migration_is_run_because(rows: list[Applied], files: list[Migration], why: str) -> None:
    fault = plan(rows, files)

    assert isinstance(fault, Fault)
    assert why in fault.why
    assert fault.fix


@pytest.mark.parametrize(
    ("names", "why"),
    [
        pytest.param(["0002_b.sql"], "0002_b where 0001", id="the first number is missing"),
        pytest.param(["0001_a.sql", "0003_c.sql"], "0003_c where 0002", id="a number is missing"),
        pytest.param(
            ["0001_a.sql", "0001_b.sql"], "0001_b where 0002", id="a number is used twice"
        ),
        pytest.param(["1_a.sql"], "1_a.sql is no name", id="a number is too short"),
        pytest.param(["0001-a.sql"], "0001-a.sql is no name", id="a name is spelled otherwise"),
    ],
)
def test_the_files_are_refused_because(names: list[str], why: str) -> None:
    fault = migrations_of(dict.fromkeys(names, "SELECT 1"))

    assert isinstance(fault, Fault)
    assert why in fault.why


def test_a_file_has_one_checksum_however_its_lines_end() -> None:
    unix = migrations_of({"0001_a.sql": "SELECT 1;\nSELECT 2;\n"})
    windows = migrations_of({"0001_a.sql": "SELECT 1;\r\nSELECT 2;\r\n"})

    assert unix == windows


def test_a_file_is_run_whole_in_a_transaction_unless_its_first_line_says_otherwise() -> None:
    ordinary = Migration(1, "a", "CREATE TABLE a ();\nCREATE TABLE b ();\n")
    apart = Migration(
        2,
        "b",
        "-- remuda: no transaction\n-- Drops what a crash left.\n"
        "DROP INDEX CONCURRENTLY IF EXISTS i;\nCREATE INDEX CONCURRENTLY i\n  ON a (x);\n-- End.\n",
    )

    assert (ordinary.in_transaction, ordinary.statements) == (True, (ordinary.sql,))
    assert not apart.in_transaction
    assert [s.splitlines()[-1] for s in apart.statements] == [
        "DROP INDEX CONCURRENTLY IF EXISTS i",
        "  ON a (x)",
    ]


@given(st.integers(0, 5), st.integers(0, 5))
def test_after_its_steps_a_plan_has_nothing_to_do(ran: int, shipped: int) -> None:
    files = [Migration(n, f"m{n}", f"SELECT {n}") for n in range(1, shipped + 1)]
    rows = [applied(Migration(n, f"m{n}", f"SELECT {n}")) for n in range(1, ran + 1)]
    steps = plan(rows, files)

    if ran > shipped:
        assert isinstance(steps, Fault)
    else:
        assert not isinstance(steps, Fault)
        assert plan([*rows, *map(applied, steps)], files) == ()
