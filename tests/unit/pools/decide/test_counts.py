from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.model.runner import Mark
from remuda.pools.decide.counts import count
from tests.unit.pools.builders import (
    NEW,
    NOW,
    OLD,
    a_pool,
    ago,
    busy,
    ended,
    marked,
    starting,
    unseen,
    waiting,
    warm,
)

if TYPE_CHECKING:
    from remuda.model.runner import Runner


@pytest.mark.parametrize(
    ("runners", "unavailable"),
    [
        pytest.param([], 3, id="what is missing is unavailable"),
        pytest.param([warm("a"), warm("b"), warm("c")], 0, id="a warm pool lacks nothing"),
        pytest.param([busy("a"), busy("b"), busy("c")], 0, id="a busy runner is in use, not missing"),
        pytest.param([warm("a"), warm("b"), starting("c")], 1, id="a cold start counts"),
        pytest.param([warm("a"), warm("b"), waiting("c")], 1, id="one without a host counts"),
        pytest.param([warm("a"), warm("b"), unseen("c")], 1, id="one that was only asked for counts"),
        pytest.param([warm("a"), warm("b"), ended("c")], 1, id="an ended runner is missing"),
        pytest.param(
            [warm("a"), warm("b"), warm("c", deleting_since=ago(1))], 1,
            id="one being deleted is missing",
        ),
        pytest.param([warm("a"), warm("b"), marked("c")], 1, id="a marked stale runner counts"),
        pytest.param(
            [warm("a"), warm("b"), marked("c", target="other")], 1,
            id="a void mark counts until it is gone: dispatch may have answered it",
        ),
        pytest.param(
            [warm("a"), warm("b"), warm("c", mark=Mark(OLD, ago(9)))], 1,
            id="so does a leftover mark on a current runner",
        ),
        pytest.param(
            [warm("a"), warm("b"), busy("c", template=OLD, mark=Mark(NEW, ago(9)))], 0,
            id="a marked runner that took a job gave its slot back",
        ),
        pytest.param([warm("a"), warm("b"), warm("c", template=OLD)], 0, id="a stale warm one serves"),
        pytest.param(
            [warm("a"), warm("b"), starting("c", template=OLD)], 0,
            id="a stale cold one does not hold the budget of the roll that mends it",
        ),
        pytest.param([warm("a"), warm("b"), warm("c", drain=True)], 1, id="a person drains one"),
        pytest.param(
            [warm("a"), warm("b"), warm("c", drain=True, template=OLD)], 1,
            id="a person drains a stale one",
        ),
        pytest.param([warm(n) for n in "abcde"], 0, id="a surplus is no credit"),
    ],
)  # fmt: skip
def test_unavailable(runners: list[Runner], unavailable: int) -> None:
    assert count(a_pool(replicas=3), runners, NOW).unavailable == unavailable


def test_every_state_is_counted_once() -> None:
    runners = [
        warm("warm"),
        warm("stale", template=OLD),
        marked("marked"),
        busy("busy"),
        busy("busy-stale", template=OLD),
        starting("starting", created_at=ago(70)),
        waiting("waiting", created_at=ago(20)),
        ended("ended"),
        ended("ended-deleting", deleting_since=ago(40)),
        warm("deleting", deleting_since=ago(30)),
    ]

    counts = count(a_pool(replicas=20, roll_percent=10), runners, NOW)

    assert (counts.alive, counts.warm, counts.busy, counts.starting) == (7, 2, 2, 2)
    assert (counts.stale, counts.marked, counts.ended, counts.terminating) == (3, 1, 1, 2)
    assert (counts.missing, counts.unavailable, counts.roll_cap) == (13, 16, 2)
    assert (counts.oldest_starting_age_s, counts.oldest_terminating_age_s) == (70, 40)


def test_a_clock_that_runs_ahead_makes_no_negative_age() -> None:
    counts = count(a_pool(), [starting("a", created_at=ago(-60))], NOW)

    assert counts.oldest_starting_age_s == 0


def test_a_deleted_pool_misses_nobody() -> None:
    assert count(a_pool(deleting=True), [], NOW).unavailable == 0


@pytest.mark.parametrize(
    ("replicas", "percent", "cap"),
    [
        (0, 5, 1),
        (1, 5, 1),
        (9, 5, 1),
        (39, 5, 1),
        (40, 5, 2),
        (100, 5, 5),
        (20, 10, 2),
        (3, 100, 3),
    ],
)
def test_the_cap_is_rounded_down_and_at_least_one(replicas: int, percent: int, cap: int) -> None:
    assert count(a_pool(replicas=replicas, roll_percent=percent), [], NOW).roll_cap == cap
