from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.pools.decide.actions import Cause
from remuda.pools.decide.brake import Slots
from remuda.pools.decide.replicas import fill, shrink
from tests.unit.pools.builders import (
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
    ("runners", "slots", "created", "blocked"),
    [
        pytest.param([], Slots(9), 3, "", id="an empty pool is filled"),
        pytest.param([warm("a"), busy("b")], Slots(9), 1, "", id="a busy runner holds a place"),
        pytest.param([warm("a"), starting("b"), unseen("c")], Slots(9), 0, "", id="asked for is there"),
        pytest.param([warm("a"), ended("b")], Slots(9), 2, "", id="an ended one is replaced"),
        pytest.param(
            [warm("a"), warm("b", deleting_since=ago(1))], Slots(9), 2, "", id="a deleted one is replaced"
        ),
        pytest.param([warm(n) for n in "abcd"], Slots(9), 0, "", id="too many make none"),
        pytest.param([], Slots(2), 2, "fleet_cap", id="the brake lets some through"),
        pytest.param([], Slots(3), 3, "", id="just enough slots block nobody"),
        pytest.param([], Slots(0, "no_healthy_node"), 0, "no_healthy_node", id="no host could start it"),
        pytest.param(
            [warm(n) for n in "abc"], Slots(0, "fleet_cap"), 0, "", id="a full pool is not blocked"
        ),
    ],
)  # fmt: skip
def test_fill(runners: list[Runner], slots: Slots, created: int, blocked: str) -> None:
    filling = fill(a_pool(replicas=3), runners, slots)

    assert (len(filling.creates), filling.blocked) == (created, blocked)


def test_a_deleted_pool_makes_nobody() -> None:
    assert fill(a_pool(deleting=True), [], Slots(9)).creates == ()


LADDER = (
    marked("marked"),
    warm("drained", drain=True, created_at=ago(2000)),
    starting("stale-cold", template=OLD),
    warm("stale-warm", template=OLD),
    waiting("no-host-young", created_at=ago(10)),
    waiting("no-host-old", created_at=ago(20)),
    starting("cold", created_at=ago(5)),
    warm("warm-young", created_at=ago(100)),
    warm("warm-old", created_at=ago(200)),
)
"""From the least to the most useful."""


@pytest.mark.parametrize("replicas", range(len(LADDER) + 1))
def test_the_least_useful_go_first(replicas: int) -> None:
    gone = shrink(a_pool(replicas=replicas), LADDER[::-1])

    surplus = len(LADDER) - replicas
    assert [r.runner.name for r in gone] == [r.name for r in LADDER[:surplus]]
    assert all(r.cause is Cause.SCALE_DOWN for r in gone)


@pytest.mark.parametrize(
    ("runners", "gone"),
    [
        pytest.param([busy("a"), busy("b"), warm("c")], ["c"], id="only idle ones go"),
        pytest.param([busy("a"), busy("b"), busy("c")], [], id="a pool of busy ones waits"),
        pytest.param([busy("a", template=OLD), warm("b"), warm("c")], ["b", "c"], id="a stale busy one stays"),
        pytest.param([warm("a"), ended("b"), ended("c")], [], id="ended ones are no surplus"),
        pytest.param(
            [warm("a"), warm("b", deleting_since=ago(1))], [], id="one being deleted is no surplus"
        ),
        pytest.param(
            [warm("a"), unseen("b")], [], id="no warm one goes for one that cannot be named yet"
        ),
    ],
)  # fmt: skip
def test_who_goes_when_one_is_wanted(runners: list[Runner], gone: list[str]) -> None:
    assert sorted(r.runner.name for r in shrink(a_pool(replicas=1), runners)) == gone


def test_why_says_what_the_pool_wants_and_what_the_runner_is() -> None:
    (reap,) = shrink(a_pool(replicas=0), [starting("a", template=OLD)])

    assert (
        reap.why == "mac wants 0 runners; this one is idle, not warm yet and of an older template"
    )
