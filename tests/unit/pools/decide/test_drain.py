from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from remuda.pools.decide.actions import Cause, ReapRunner, ReleasePool
from remuda.pools.decide.drain import drain_pool, off_nodes
from tests.unit.pools.builders import NOW, ago, busy, ended, starting, unseen, waiting, warm

if TYPE_CHECKING:
    from remuda.model.runner import Runner


@pytest.mark.parametrize(
    ("runner", "reaped"),
    [
        pytest.param(warm("a", node="bad"), True, id="a warm runner leaves"),
        pytest.param(starting("a", node="bad"), True, id="a starting runner leaves"),
        pytest.param(busy("a", node="bad"), False, id="a busy runner stays"),
        pytest.param(warm("a", node="good"), False, id="a runner elsewhere stays"),
        pytest.param(waiting("a"), False, id="a runner without a host stays"),
        pytest.param(
            warm("a", node="bad", deleting_since=ago(1)), False, id="one is going already"
        ),
        pytest.param(ended("a", node="bad"), False, id="an ended runner is another's worry"),
    ],
)
def test_node_drain(runner: Runner, reaped: bool) -> None:  # noqa: FBT001 - a column of the table
    reaps = off_nodes([runner], {"bad"})

    assert [r.cause for r in reaps] == ([Cause.NODE_DRAIN] if reaped else [])


@pytest.mark.parametrize(
    ("runners", "reaped", "released"),
    [
        pytest.param([], [], True, id="an empty pool goes"),
        pytest.param([warm("a"), starting("b"), waiting("c")], ["a", "b", "c"], False, id="idle ones go"),
        pytest.param([busy("a")], [], False, id="a busy one is awaited"),
        pytest.param([busy("a"), warm("b")], ["b"], False, id="idle ones do not wait for busy ones"),
        pytest.param([ended("a")], ["a"], False, id="an ended one is cleared away first"),
        pytest.param([warm("a", deleting_since=ago(59))], [], False, id="a host has its minute"),
        pytest.param([warm("a", deleting_since=ago(60))], [], True, id="a host that is gone holds nobody"),
        pytest.param([ended("a", deleting_since=ago(5))], [], False, id="ended and being deleted: held"),
        pytest.param([ended("a", deleting_since=ago(99))], [], True, id="ended and stuck: let go"),
        pytest.param([unseen("a")], [], False, id="one that may still appear is awaited"),
    ],
)  # fmt: skip
def test_pool_drain(runners: list[Runner], reaped: list[str], released: bool) -> None:  # noqa: FBT001 - a column of the table
    actions = drain_pool(runners, NOW).actions

    assert sorted(a.runner.name for a in actions if isinstance(a, ReapRunner)) == reaped
    assert any(isinstance(a, ReleasePool) for a in actions) is released


def test_a_drain_names_whom_it_awaits_and_when_to_look() -> None:
    draining = drain_pool([busy("b"), busy("a"), warm("c", deleting_since=ago(20))], NOW)

    assert sorted(draining.busy) == ["a", "b"]
    assert draining.terminating == ("c",)
    assert draining.look_again_after == timedelta(seconds=40)
