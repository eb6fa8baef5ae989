from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.model.runner import End
from remuda.pools.decide.reaping import ended as reap_ended
from tests.unit.pools.builders import ago, busy, ended, starting, warm

if TYPE_CHECKING:
    from remuda.model.runner import Runner


@pytest.mark.parametrize(
    ("runner", "reaped"),
    [
        pytest.param(ended("a"), True, id="an ended runner is cleared away"),
        pytest.param(
            ended("a", deleting_since=ago(1)), False, id="one being deleted is never reaped again"
        ),
        pytest.param(warm("a"), False, id="a warm runner stays"),
        pytest.param(busy("a"), False, id="a busy runner stays"),
        pytest.param(starting("a"), False, id="a starting runner stays"),
    ],
)
def test_who_is_reaped(runner: Runner, reaped: bool) -> None:  # noqa: FBT001 - a column of the table
    assert bool(reap_ended([runner])) is reaped


def test_taking_deletion_first_out_reaps_a_deleted_runner_again() -> None:
    assert reap_ended([ended("a", deleting_since=ago(1))], deletion_first=False)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (None, "it ended"),
        (End(), "it ended"),
        (End(exit_code=0), "it ended with exit code 0"),
        (End(exit_code=137, reason="OOMKilled"), "it ended with exit code 137 (OOMKilled)"),
        (End(reason="Evicted"), "it ended (Evicted)"),
    ],
    ids=["unknown", "nothing said", "clean", "killed", "evicted"],
)
def test_why(end: End | None, why: str) -> None:
    assert [reap.why for reap in reap_ended([ended("a", end=end)])] == [why]
