from __future__ import annotations

import pytest

from remuda.adapters.postgres.queries import parse, query


def test_a_file_is_cut_at_its_names() -> None:
    text = (
        "-- All about jobs.\n\n-- name: one\n-- Why.\nSELECT 1;\n\n-- name: two\nSELECT $1::int\n"
    )

    assert parse(text) == {"one": "-- Why.\nSELECT 1", "two": "SELECT $1::int"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("SELECT 1;\n-- name: one\nSELECT 2", "before the first name", id="no name"),
        pytest.param(
            "-- name: a\nSELECT 1\n-- name: a\nSELECT 2", "two queries", id="a name twice"
        ),
        pytest.param("-- name: a\n\n-- name: b\nSELECT 2", "a is empty", id="a name without SQL"),
    ],
)
def test_a_file_is_refused_with(text: str, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        parse(text)


def test_a_name_that_nobody_wrote_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="no query is named nonsense"):
        query("nonsense")
