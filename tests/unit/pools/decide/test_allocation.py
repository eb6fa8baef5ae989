from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.pools.decide.allocation import Ask, allocate
from remuda.pools.decide.capacity import room
from tests.unit.pools.decide.scaled import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

SIX_FLOORS = [ask(f"p{n}", 1, 1, 0, 1) for n in range(6)]


@pytest.mark.parametrize(
    ("asks", "free", "expected"),
    [
        pytest.param([], [9], {}, id="nobody asks"),
        pytest.param(
            [ask("small", 2, 1, 2, 5), ask("med", 4, 1, 1, 4)], [100], {"small": 5, "med": 4},
            id="with room for all, all get their target",
        ),
        pytest.param(
            [ask("a", 16, 1, 3, 6), ask("b", 16, 1, 2, 5)], [32], {"a": 3, "b": 2},
            id="load is granted beyond the room: the rest stays Pending and asks for a host",
        ),
        pytest.param(
            [ask("small", 8, 20, 0, 25), ask("big", 16, 0, 10, 10)], [200], {"small": 5, "big": 10},
            id="the load of one comes before the floor of another",
        ),
        pytest.param(
            [ask("x", 4, 1, 0, 5), ask("y", 4, 1, 0, 3)], [20], {"x": 3, "y": 2},
            id="headroom is shared in proportion",
        ),
        pytest.param(
            [ask("load", 4, 2, 3, 5), ask("floor", 4, 2, 0, 5)], [], {"load": 3, "floor": 0},
            id="without any room only load is granted",
        ),
        pytest.param(
            [ask("full", 1, 1, 9, 10), ask("w1", 1, 1, 1, 2), ask("w2", 1, 1, 1, 2)], [1] * 9,
            {"full": 9, "w1": 1, "w2": 1},
            id="a pool whose jobs are all withheld keeps the one runner of its load on a full fleet",
        ),
        pytest.param(
            [ask("busy", 8, 1, 6, 8), ask("idle", 8, 1, 0, 5)], [60], {"busy": 6, "idle": 1},
            id="idle headroom gives way to the load of another, not the floor while it fits",
        ),
        pytest.param(
            [ask("busy", 8, 1, 6, 8), ask("idle", 8, 1, 0, 5)], [64], {"busy": 6, "idle": 2},
            id="D3: the last slot goes to the larger remainder, where truncation left it empty",
        ),
        pytest.param(
            SIX_FLOORS, [5], {"p0": 1, "p1": 1, "p2": 1, "p3": 1, "p4": 1, "p5": 0},
            id="D3: of six that want one, five slots serve five, by name, where truncation served none",
        ),
        pytest.param(
            [ask("big", 16, 1, 0, 2)], [12, 12], {"big": 0},
            id="D15: two hosts with room for three quarters each hold no runner, whatever the sum",
        ),
        pytest.param(
            [ask("big", 16, 1, 0, 2), ask("small", 4, 0, 0, 9)], [12, 12], {"big": 0, "small": 6},
            id="D15: what no large runner fits into is given to small ones",
        ),
        pytest.param(
            [ask("big", 5, 1, 0, 1), ask("small", 2, 3, 0, 3)], [5, 6], {"big": 1, "small": 3},
            id="a tier that fits only with the large ones placed first is granted whole",
        ),
        pytest.param(
            [ask("a", 3, 0, 0, 4)], [8, 8], {"a": 4},
            id="on each host a whole number fits",
        ),
        pytest.param(
            [ask("a", 1, 5, 3, 20), ask("b", 1, 5, 0, 20)], [12], {"a": 6, "b": 6},
            id="busy runners count towards the floor: it is not added to them",
        ),
        pytest.param(
            [ask("a", 1, 9, 0, 2)], [9], {"a": 2},
            id="a floor above the target ends at the target",
        ),
        pytest.param(
            [ask("a", 1, 0, 9, 4)], [0], {"a": 4},
            id="a load above the maximum ends at the maximum",
        ),
        pytest.param(
            [ask("big", 8, 1, 0, 1), ask("tiny", 1, 0, 0, 9)], [7], {"big": 0, "tiny": 7},
            id="a floor that fits nowhere does not lock the room away from others' headroom",
        ),
    ],
)  # fmt: skip
def test_allocate(asks: list[Ask], free: list[int], expected: dict[str, int]) -> None:
    assert allocate(asks, room(free)) == expected


def asks_of(costs: st.SearchStrategy[int]) -> st.SearchStrategy[list[Ask]]:
    """Any demand of a few pools, also one that makes no sense (a load above the target)."""
    small = st.integers(0, 6)
    one = st.builds(ask, st.sampled_from("abcdef"), costs, small, small, st.integers(0, 12))
    return st.lists(one, max_size=5, unique_by=lambda a: a.pool)


HOSTS = st.lists(st.integers(0, 16), max_size=4)
MIXED = asks_of(st.integers(1, 8))
SLOTS = asks_of(st.just(3))


def loads(asks: Sequence[Ask]) -> int:
    return sum(a.granted for a in asks)


@given(asks=MIXED, free=HOSTS)
def test_everyone_gets_from_load_to_target(asks: list[Ask], free: list[int]) -> None:
    got = allocate(asks, room(free))

    assert sorted(got) == sorted(a.pool for a in asks)
    assert all(min(a.load, a.target) <= got[a.pool] <= a.target for a in asks)


@given(asks=MIXED, free=HOSTS, data=st.data())
def test_order_does_not_matter(asks: list[Ask], free: list[int], data: st.DataObject) -> None:
    shuffled, turned = data.draw(st.permutations(asks)), data.draw(st.permutations(free))

    assert allocate(shuffled, room(turned)) == allocate(asks, room(free))


@given(asks=MIXED, free=HOSTS)
def test_what_is_granted_beyond_load_has_hosts(asks: list[Ask], free: list[int]) -> None:
    got = allocate(asks, room(free))
    load = [a.cost for a in asks for _ in range(a.granted)]
    extra = [a.cost for a in asks for _ in range(got[a.pool] - a.granted)]

    if extra:
        assert packs(extra, free)
    if extra and packs(load, free) and len(set(load + extra)) == 1:
        assert packs(load + extra, free)


def packs(costs: list[int], free: list[int]) -> bool:
    """Search for a host for each of them. Slow and sure."""
    if not costs:
        return True
    largest, *rest = sorted(costs, reverse=True)
    tried = set()
    for n, host in enumerate(free):
        if host >= largest and host not in tried:
            tried.add(host)
            if packs(rest, [*free[:n], host - largest, *free[n + 1 :]]):
                return True
    return False


@given(asks=MIXED, capacity=st.integers(0, 60))
def test_on_one_host_nothing_that_fits_is_left(asks: list[Ask], capacity: int) -> None:
    got = allocate(asks, room([capacity]))
    load = sum(a.cost * a.granted for a in asks)
    if load > capacity:
        return
    left = capacity - sum(a.cost * got[a.pool] for a in asks)

    assert left >= 0
    assert all(a.cost > left for a in asks if got[a.pool] < a.target)


@given(asks=MIXED, free=HOSTS)
def test_a_host_that_would_take_one_more_is_not_left_so(asks: list[Ask], free: list[int]) -> None:
    got = allocate(asks, room(free))
    left = sum(free) - sum(a.cost * got[a.pool] for a in asks)

    # If every host has less than one runner's cost free, together they have no more than this.
    assert all(left <= (a.cost - 1) * len(free) for a in asks if got[a.pool] < a.target)


@given(asks=SLOTS, free=HOSTS)
def test_equal_runners_fill_every_slot(asks: list[Ask], free: list[int]) -> None:
    slots, targets = sum(f // 3 for f in free), sum(max(0, a.target) for a in asks)

    got = allocate(asks, room(free))

    assert sum(got.values()) == max(loads(asks), min(slots, targets))


def tiers(asks: Sequence[Ask], got: dict[str, int]) -> tuple[int, int]:
    """Return how many were granted of all floors and of all headroom."""
    floors = sum(min(got[a.pool], a.floor_top) - a.granted for a in asks)
    return floors, sum(got.values()) - loads(asks) - floors


@given(asks=SLOTS, free=HOSTS, more=st.integers(0, 12))
def test_more_room_never_gives_a_tier_less(asks: list[Ask], free: list[int], more: int) -> None:
    before = tiers(asks, allocate(asks, room(free)))

    for larger in ([*free, more], [*free[:-1], free[-1] + more] if free else [more]):
        after = tiers(asks, allocate(asks, room(larger)))
        assert after[0] >= before[0]
        assert after[1] >= before[1]


@given(asks=SLOTS, free=HOSTS)
def test_floors_come_before_any_headroom(asks: list[Ask], free: list[int]) -> None:
    floors, headroom = tiers(asks, allocate(asks, room(free)))

    assert headroom == 0 or floors == sum(a.floor_top - a.granted for a in asks)


@given(asks=SLOTS, free=HOSTS)
def test_a_tier_is_split_to_within_one_runner_of_its_shares(asks: list[Ask], free: list[int]) -> None:  # fmt: skip
    slots = max(0, sum(f // 3 for f in free) - loads(asks))
    floors = {a.pool: a.floor_top - a.granted for a in asks}
    total = sum(floors.values())
    if total <= slots:
        return

    got = allocate(asks, room(free))

    for a in asks:
        share = Fraction(floors[a.pool] * slots, total)
        assert abs(got[a.pool] - a.granted - share) < 1
