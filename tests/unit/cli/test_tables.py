"""Tables, column by column: what is said, what is cut, and what never reaches a terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.tables import (
    Column,
    age,
    cells,
    cut,
    display_width,
    duration,
    line,
    plain,
    table,
    widths,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
COLUMNS: tuple[Column[tuple[str, str]], ...] = (
    Column("NAME", lambda row, _: row[0]),
    Column("STATE", lambda row, _: row[1], is_state=True),
)


@pytest.mark.parametrize(
    ("rows", "room", "lines"),
    [
        pytest.param([], None, ["NAME   STATE"], id="an empty list is its header"),
        pytest.param(
            [("a", "warm"), ("longer-name", "busy")],
            None,
            ["NAME          STATE", "a             warm", "longer-name   busy"],
            id="columns are as wide as what stands in them, and no line ends in spaces",
        ),
        pytest.param(
            [("a", ""), ("", "busy")],
            None,
            ["NAME   STATE", "a      -", "-      busy"],
            id="nothing is a dash",
        ),
        pytest.param(
            [("日本語", "warm"), ("abc", "busy")],
            None,
            ["NAME     STATE", "日本語   warm", "abc      busy"],
            id="wide characters take two places",
        ),
        pytest.param(
            [("e\u0301te\u0301", "warm")],
            None,
            ["NAME   STATE", "e\u0301te\u0301    warm"],
            id="accents that are drawn over a letter take none",
        ),
        pytest.param(
            [("a-very-long-name-indeed", "warm")],
            24,
            ["NAME             STATE", "a-very-long-nam…   warm"],
            id="a narrow terminal cuts the widest column",
        ),
        pytest.param(
            [("日本語日本語日本語日本語", "warm")],
            18,
            ["NAME         STATE", "日本語日…    warm"],
            id="a wide character is not cut in half",
        ),
        pytest.param(
            [("a-very-long-name-indeed", "warm")],
            3,
            ["NAME       STATE", "a-very-…   warm"],
            id="in no room at all something is said all the same",
        ),
        pytest.param(
            [("evil\x1b[2Jname\nnext\tline", "warm")],
            None,
            ["NAME                    STATE", "evil [2Jname next line   warm"],
            id="what a terminal would obey is not printed",
        ),
    ],
)
def test_a_table(rows: list[tuple[str, str]], room: int | None, lines: list[str]) -> None:
    seen = table(COLUMNS, rows, NOON, room=room)

    assert [each.split() for each in seen] == [each.split() for each in lines]
    if room is None or room > 20:
        starts = {display_width(each[: _second(each)]) for each in seen}
        assert len(starts) == 1, f"the second column is not in line: {seen}"
    assert all(each == each.rstrip() for each in seen)


def _second(text: str) -> int:
    return len(text) - len(text.rsplit("   ", maxsplit=1)[-1].lstrip())


def test_the_very_text_of_a_table() -> None:
    rows = [("mac-x7k2p", "warm"), ("日本語", "busy")]

    assert table(COLUMNS, rows, NOON) == [
        "NAME        STATE",
        "mac-x7k2p   warm",
        "日本語      busy",
    ]


FORMS: tuple[Column[tuple[str, str, str]], ...] = (
    Column("NAME", lambda row, _: row[0], whole=True),
    Column("RUNNER", lambda row, _: row[1], told_by_end=True, gives_way=1),
    Column("NOTE", lambda row, _: row[2], gives_way=2),
)


@pytest.mark.parametrize(
    ("room", "lines"),
    [
        pytest.param(
            47,
            [
                "NAME              RUNNER             NOTE",
                f"{'n' * 15}   default-hbtfll7b   a remark",
            ],
            id="what fits is all there",
        ),
        pytest.param(
            40,
            ["NAME              RUNNER        NOTE", f"{'n' * 15}   …t-hbtfll7b   a remark"],
            id="a name that its end tells apart keeps its end",
        ),
        pytest.param(
            32,
            ["NAME              RUNNER", f"{'n' * 15}   …ault-hbtfll7b"],
            id="what gives way first is left out first",
        ),
        pytest.param(10, ["NAME", "n" * 15], id="what people copy stays whole in any room"),
    ],
)
def test_a_narrow_table_leaves_out_what_gives_way_and_cuts_no_key(
    room: int, lines: list[str]
) -> None:
    assert table(FORMS, [("n" * 15, "default-hbtfll7b", "a remark")], NOON, room=room) == lines


def test_colours_take_no_room_and_are_on_states_alone() -> None:
    said = cells(COLUMNS, ("warm", "warm"), NOON)
    sizes = widths(COLUMNS, [said])

    assert line(COLUMNS, said, sizes) == "warm   warm"
    assert line(COLUMNS, said, sizes, colour=True) == "warm   \x1b[32mwarm \x1b[0m"


def test_what_is_gone_says_so_in_its_state() -> None:
    assert cells(COLUMNS, ("a", "busy"), NOON, gone=True) == ("a", "gone")


@given(st.text(), st.integers(1, 40))
def test_what_is_cut_fits_and_says_that_it_was_cut(text: str, size: int) -> None:
    shown = cut(text, size)

    assert display_width(shown) <= size or display_width(text) <= size
    assert shown == text or shown.endswith("…")
    end = cut(text, size, by_end=True)
    assert display_width(end) <= size or display_width(text) <= size
    assert end == text or (end.startswith("…") and text.endswith(end[1:]))


@given(st.text())
def test_no_text_moves_the_cursor(text: str) -> None:
    assert plain(text).isprintable()


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5), st.integers(1, 60))
def test_a_table_is_as_narrow_as_asked_or_as_it_can_be(
    rows: list[tuple[str, str]], room: int
) -> None:
    assert all(
        display_width(each) <= max(room, 19) for each in table(COLUMNS, rows, NOON, room=room)
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (59, "59s"),
        (60, "1m"),
        (200, "3m20s"),
        (25 * 60 + 3, "25m"),
        (3600, "1h"),
        (7 * 3600 + 300, "7h5m"),
        (23 * 3600, "23h"),
        (3 * 86400 + 7200, "3d2h"),
        (40 * 86400, "40d"),
    ],
)
def test_durations_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_age_that_is_not_known_is_nothing() -> None:
    assert age(None, NOON) == ""
    assert age(NOON - timedelta(seconds=5), NOON) == "5s"
