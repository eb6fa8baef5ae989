from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.pools.decide.brake import Claim, Slots, share, slots


@pytest.mark.parametrize(
    ("maxima", "starting", "healthy", "expected"),
    [
        pytest.param([4], 0, 3, Slots(4, most=4), id="all slots are free"),
        pytest.param([4], 3, 3, Slots(1, most=4), id="what starts takes a slot"),
        pytest.param(
            [4], 4, 3, Slots(0, "fleet_cap", most=4), id="the fleet starts as many as it may"
        ),
        pytest.param([4], 9, 3, Slots(0, "fleet_cap", most=4), id="a lowered maximum is no debt"),
        pytest.param([4, 2, 8], 1, 3, Slots(1, most=2), id="the lowest sibling wins"),
        pytest.param([4], 0, 0, Slots(0, "no_healthy_node"), id="nobody could start it"),
        pytest.param([4], 0, None, Slots(0, "fleet_view_error"), id="nodes cannot be read"),
        pytest.param([], 0, 3, Slots(0, "fleet_view_error"), id="no pool of the fleet can be read"),
    ],
)
def test_slots(maxima: list[int], starting: int, healthy: int | None, expected: Slots) -> None:
    assert slots(maxima, starting, healthy) == expected


def waits(wants: int, since: float, starting: int = 0) -> Claim:
    return Claim(pool=f"pool-{since:g}", starting=starting, wants=wants, since=since)


ALONE = Claim(pool="own", starting=0)


@pytest.mark.parametrize(
    ("most", "own", "others", "expected"),
    [
        pytest.param(4, ALONE, [], 4, id="a pool alone may have all"),
        pytest.param(4, ALONE, [Claim(pool="other", starting=0)], 4, id="a sibling that wants nothing leaves all"),
        pytest.param(4, ALONE, [Claim(pool="other", starting=3)], 1, id="what a sibling holds, it holds"),
        pytest.param(4, ALONE, [Claim(pool="other", starting=9)], 0, id="also if that is too many"),
        pytest.param(4, ALONE, [waits(8, 1)], 2, id="two that want much share"),
        pytest.param(4, ALONE, [waits(1, 1)], 3, id="one that wants little gets that"),
        pytest.param(4, ALONE, [waits(4, 1, starting=4)], 2, id="who holds more than its share keeps nobody out"),
        pytest.param(4, ALONE, [waits(9, 1), waits(1, 1)], 1, id="what cannot be divided goes to who waits longest"),
        pytest.param(4, waits(9, 0), [waits(9, 1), waits(1, 1)], 2, id="that may be the pool itself"),
        pytest.param(1, ALONE, [waits(2, 1)], 0, id="a single slot goes to who waits"),
        pytest.param(1, waits(2, 1), [waits(2, 2)], 1, id="or to who has waited longer"),
        pytest.param(1, replace(waits(1, 1), pool="a"), [waits(1, 1)], 1, id="of two it is the first by name"),
        pytest.param(1, replace(waits(1, 1), pool="z"), [waits(1, 1)], 0, id="never both, never neither"),
        pytest.param(2, waits(9, 5), [waits(9, 1), waits(9, 2), waits(9, 9)], 0, id="two before it take both"),
        pytest.param(2, waits(9, 2), [waits(9, 1), waits(9, 5), waits(9, 9)], 1, id="one before it leaves one"),
    ],
)  # fmt: skip
def test_share(most: int, own: Claim, others: list[Claim], expected: int) -> None:
    assert share(most, own, others) == expected
    assert share(most, own, reversed(others)) == expected


claims = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=6).map(
    lambda found: [
        Claim(pool=f"pool-{n}", starting=0, wants=wants, since=float(since))
        for n, (wants, since) in enumerate(found)
    ]
)


@given(st.integers(1, 9), claims)
def test_shares_are_given_out_whole_and_to_nobody_twice(most: int, pools: list[Claim]) -> None:
    """Whoever looks first: what each may have at least adds up to no more than there is, and nobody is left out."""
    shares = [
        min(own.wants, share(most, own, [other for other in pools if other is not own]))
        for own in pools
    ]

    assert sum(shares) == min(most, sum(own.wants for own in pools))
    longest = min(range(len(pools)), key=lambda n: (pools[n].since, pools[n].pool))
    assert shares[longest] >= 1
