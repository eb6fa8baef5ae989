"""Which audit entries can be told in order, although their numbers are given out before they are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.dispatch.decide.settled import SETTLES, settled
from remuda.model.job import AuditEntry

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def entry(number: int, age_s: float = 0.0) -> AuditEntry:
    at = NOW - timedelta(seconds=age_s)
    return AuditEntry(number=number, at=at, who="test", what="said", why="it can")


@pytest.mark.parametrize(
    ("entries", "after", "told"),
    [
        pytest.param([], 0, [], id="nothing is new"),
        pytest.param(
            [entry(1), entry(2)], 0, [1, 2], id="numbers that follow each other are told at once"
        ),
        pytest.param([entry(2)], 0, [], id="what stands behind a young gap waits"),
        pytest.param([entry(1), entry(3), entry(4)], 0, [1], id="so does all that follows it"),
        pytest.param([entry(2, 5.0)], 0, [2], id="an old gap is never filled"),
        pytest.param([entry(2, 4.9)], 0, [], id="it is young until then"),
        pytest.param([entry(2, 60.0), entry(4)], 0, [2], id="each gap has its own age"),
        pytest.param([entry(8), entry(9)], 7, [8, 9], id="it goes on where it was"),
    ],
)
def test_entries_are_told_in_order(entries: list[AuditEntry], after: int, told: list[int]) -> None:
    assert [e.number for e in settled(entries, after, NOW)] == told


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8), max_size=3))
def test_a_follower_misses_nothing_whatever_the_order_of_commits(
    commits: list[int], rolled_back: set[int]
) -> None:
    """Whatever order transactions end in, and whichever of them never do, each entry is told once and in order."""
    written: list[AuditEntry] = []
    told: list[int] = []
    now = NOW
    for number in [*commits, None, None]:
        if number is not None and number not in rolled_back:
            written.append(AuditEntry(number=number, at=NOW, who="t", what="w", why="y"))
        if number is None:
            now += SETTLES
        after = told[-1] if told else 0
        page = sorted((e for e in written if e.number > after), key=lambda e: e.number)
        told += [e.number for e in settled(page, after, now)]

    assert told == sorted(set(range(1, 9)) - rolled_back)
