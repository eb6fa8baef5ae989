from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.pools.decide.autoscale import HIGHS_MAX, Hold, Memory, Scale, autoscale
from tests.unit.pools.decide.scaled import NOW

TICK_S = 5
COOLDOWN_S = 300


class Days:
    """A pool whose replicas follow the decisions, tick by tick."""

    def __init__(self, replicas: int, *, cooldown_s: int = COOLDOWN_S) -> None:
        self.replicas = replicas
        self.memory = Memory()
        self.now = NOW
        self.last_down_at = NOW - timedelta(days=1)
        self.cooldown = timedelta(seconds=cooldown_s)
        self.why = ""

    def tick(self, wanted: int, *, after_s: int = TICK_S) -> int:
        self.now += timedelta(seconds=after_s)
        step, self.memory = autoscale(
            self.replicas,
            wanted,
            self.memory,
            last_scale_down_at=self.last_down_at,
            cooldown=self.cooldown,
            now=self.now,
        )
        self.why = step.why
        match step:
            case Scale(replicas):
                if replicas < self.replicas:
                    self.last_down_at = self.now
                self.replicas = replicas
            case Hold():
                pass
        return self.replicas

    def ticks(self, wanted: int, seconds: int) -> int:
        for _ in range(seconds // TICK_S):
            self.tick(wanted)
        return self.replicas


def test_up_goes_at_once() -> None:
    pool = Days(2)

    assert pool.tick(9) == 9
    assert pool.why == "demand rose: 9 runners are wanted, 2 were"


def test_the_first_drop_waits_for_the_whole_cooldown_too() -> None:
    pool = Days(10)
    pool.tick(10)

    assert pool.ticks(2, COOLDOWN_S) == 10
    assert pool.tick(2) == 2


def test_a_drop_is_timed_from_the_last_moment_of_the_higher_demand() -> None:
    pool = Days(10)
    pool.ticks(10, 3 * COOLDOWN_S)

    assert pool.ticks(2, COOLDOWN_S) == 10
    assert pool.why == "demand is lower, but was not during all of the last 300 s"
    assert pool.tick(2) == 2


def test_a_new_operator_watches_a_whole_cooldown_before_it_drops() -> None:
    pool = Days(10)
    pool.tick(2)

    assert pool.ticks(2, COOLDOWN_S - TICK_S) == 10
    assert pool.why == "demand is lower, but has not been watched for 300 s yet"
    assert pool.tick(2) == 2


def test_it_drops_to_the_highest_of_the_window() -> None:
    pool = Days(10)
    pool.ticks(1, 200)
    pool.tick(6)
    pool.ticks(3, 95)

    assert pool.replicas == 10
    assert pool.tick(1) == 6
    assert pool.why == "at most 6 runners were wanted during the last 300 s"


def test_a_rise_starts_the_cooldown_anew() -> None:
    pool = Days(10)
    pool.ticks(2, COOLDOWN_S - 10)
    pool.tick(10)

    assert pool.ticks(2, COOLDOWN_S) == 10
    assert pool.tick(2) == 2


def test_two_drops_keep_a_cooldown_apart() -> None:
    pool = Days(10)
    pool.last_down_at = NOW + timedelta(seconds=200)  # by whoever led before
    pool.ticks(5, COOLDOWN_S)

    assert pool.ticks(5, 195) == 10
    assert pool.why == "demand is lower, but the last scale-down was less than 300 s ago"
    assert pool.tick(5) == 5


def test_a_drop_noted_by_a_clock_far_ahead_does_not_hold_for_ever() -> None:
    pool = Days(10)
    pool.last_down_at = NOW + timedelta(days=30)

    assert pool.ticks(2, COOLDOWN_S + TICK_S) == 2


def test_without_a_cooldown_it_drops_at_once() -> None:
    pool = Days(10, cooldown_s=0)

    assert pool.tick(2) == 2
    assert pool.tick(1) == 1


@pytest.mark.parametrize(
    ("after_s", "expected"),
    [
        pytest.param(60, 2, id="a short gap is bridged"),
        pytest.param(61, 10, id="after a long gap the demand of meanwhile is unknown"),
        pytest.param(-1, 10, id="a clock that was set back starts it anew"),
        pytest.param(86_400, 10, id="a clock that jumped ahead starts it anew"),
    ],
)
def test_gaps(after_s: int, expected: int) -> None:
    pool = Days(10)
    pool.ticks(2, COOLDOWN_S)

    assert pool.replicas == 10
    assert pool.tick(2, after_s=after_s) == expected


def test_a_longer_cooldown_is_not_filled_from_what_was_forgotten() -> None:
    pool = Days(10, cooldown_s=60)
    pool.ticks(10, 600)

    assert pool.ticks(2, 120) == 2
    pool.cooldown = timedelta(seconds=600)
    pool.last_down_at = NOW - timedelta(days=1)
    pool.replicas = 10  # by a person; what was wanted until two minutes ago is not known any more
    assert pool.ticks(2, 535) == 10
    assert pool.why == "demand is lower, but has not been watched for 600 s yet"
    assert pool.ticks(2, 10) == 2


def test_the_memory_is_bounded_and_errs_on_the_warm_side() -> None:
    pool = Days(300, cooldown_s=3600)
    for wanted in range(300, 100, -1):
        pool.tick(wanted)
    levels = [high.replicas for high in pool.memory.highs]

    assert len(levels) == HIGHS_MAX
    assert levels == sorted(levels, reverse=True)
    assert levels[0] == 300, "joined levels keep the higher one"
    assert pool.ticks(1, 3600 - 200 * TICK_S) == 300
    assert pool.ticks(1, 7200 + 200 * TICK_S) == 1


WANTED = st.lists(st.integers(0, 8), min_size=1, max_size=60)


@given(wanted=WANTED, replicas=st.integers(0, 10), cooldown_s=st.sampled_from([0, 5, 12, 40, 100]))
def test_replicas_cover_the_demand_and_what_it_was_for_a_cooldown(
    wanted: list[int], replicas: int, cooldown_s: int
) -> None:
    pool = Days(replicas, cooldown_s=cooldown_s)
    downs = []
    for n, want in enumerate(wanted):
        before = pool.replicas
        after = pool.tick(want)
        # What was wanted from one tick on, was wanted until the next one.
        within = [
            w for m, w in enumerate(wanted[: n + 1]) if (n - m - 1) * TICK_S < cooldown_s or m == n
        ]
        assert after >= want
        if after < before:
            downs.append(pool.now)
            assert after == max(within)
            assert n * TICK_S >= cooldown_s, (
                "nothing is dropped before a whole cooldown was watched"
            )
        elif after == before and want < before and cooldown_s == 0:
            pytest.fail("without a cooldown nothing holds")
    assert all((b - a).total_seconds() >= cooldown_s for a, b in pairwise(downs))


@given(wanted=WANTED, last=st.integers(0, 8))
def test_calm_demand_is_reached_and_kept(wanted: list[int], last: int) -> None:
    pool = Days(5)
    for want in wanted:
        pool.tick(want)

    assert pool.ticks(last, 3 * COOLDOWN_S) == last
    assert pool.tick(last) == last
    assert pool.why == "replicas are as wanted"
