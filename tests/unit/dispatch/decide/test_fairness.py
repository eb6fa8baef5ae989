"""Whose turn it is, as a table and as rules for all inputs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.dispatch.decide.fairness import AGEING, Queuer, in_turn, rank
from remuda.model.job import Size

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def queuer(name: str, used: int, waited_s: float, served_s: float | None = None) -> Queuer:
    return Queuer(
        name=name,
        used=Size(used, used),
        limit=Size(100, 100),
        oldest=NOW - timedelta(seconds=waited_s),
        oldest_id=name,
        served_at=None if served_s is None else NOW - timedelta(seconds=served_s),
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(queuer("a", 0, 1), queuer("b", 5, 1), id="who uses less"),
        pytest.param(queuer("a", 0, 2), queuer("b", 0, 1), id="of equals, who waits longer"),
        pytest.param(
            queuer("a", 0, 1, 900), queuer("b", 50, 7200, 1), id="a newcomer before a long queue"
        ),
        pytest.param(
            queuer("a", 40, 7200, 600), queuer("b", 0, 60), id="who went without for long enough"
        ),
        pytest.param(queuer("a", 0, 5), queuer("b", 0, 5), id="of twins, the smaller id"),
        pytest.param(
            queuer("a", 1, -60), queuer("b", 2, 0), id="a clock that is behind is no wait"
        ),
    ],
)
def test_first_comes(first: Queuer, second: Queuer) -> None:
    assert in_turn([second, first], NOW) == (first, second)


@given(
    used=st.integers(0, 100), others=st.lists(st.integers(0, 100), min_size=1), waits=st.integers(0)
)
def test_whoever_goes_without_for_a_whole_span_goes_before_all_who_were_just_served(
    used: int, others: list[int], waits: int
) -> None:
    waited = min(AGEING.total_seconds() + waits + 1, 10**8)
    patient = queuer("patient", used, waited)
    served = [queuer(f"{n}", share, 10**7, 0) for n, share in enumerate(others)]
    assert in_turn([*served, patient], NOW)[0] is patient


@given(used=st.integers(0, 99), waited=st.integers(0, 10**6))
def test_using_more_never_brings_a_turn_nearer(used: int, waited: int) -> None:
    assert rank(queuer("a", used, waited), NOW) < rank(queuer("a", used + 1, waited), NOW)
