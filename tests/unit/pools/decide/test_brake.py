from __future__ import annotations

import pytest

from remuda.pools.decide.brake import Slots, slots


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
