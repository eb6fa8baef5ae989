from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.control.backoff import Backoff, spread

fractions = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("failures", "longest"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (5, 5.0), (10_000, 5.0)]
)
def test_waits_double_up_to_a_bound(failures: int, longest: float) -> None:
    backoff = Backoff(first_s=1.0, longest_s=5.0)

    assert backoff.wait_s(failures, 0.0) == longest / 2
    assert backoff.wait_s(failures, 0.999) == pytest.approx(longest, rel=0.01)


@given(st.integers(1, 10**6), fractions)
def test_a_wait_is_never_nothing_and_never_beyond_the_bound(failures: int, fraction: float) -> None:
    assert 0.25 <= Backoff(first_s=0.5, longest_s=60.0).wait_s(failures, fraction) <= 60.0


@given(fractions)
def test_a_period_is_spread_by_a_tenth(fraction: float) -> None:
    assert 89.999 <= spread(100.0, fraction) <= 110.001
