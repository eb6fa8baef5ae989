from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from remuda.pools.decide.conflicts import label_conflicts
from tests.unit.pools.decide.scaled import NOW, a_pool

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool


def pool(
    name: str, *labels: str, day: int = 0, deleted: bool = False, namespace: str = "ci"
) -> RunnerPool:
    made = a_pool(name, deleted_at=NOW if deleted else None)
    meta = replace(made.metadata, creation_timestamp=NOW + timedelta(days=day), namespace=namespace)
    return replace(made, metadata=meta, spec=replace(made.spec, labels=labels))


@pytest.mark.parametrize(
    ("pools", "in_conflict"),
    [
        pytest.param([], [], id="no pools"),
        pytest.param([pool("a", "mac"), pool("b", "linux")], [], id="different labels"),
        pytest.param([pool("a", "mac", day=1), pool("b", "mac", day=0)], ["a"], id="the younger has the conflict"),
        pytest.param([pool("b", "mac"), pool("a", "mac")], ["b"], id="made in the same second: by name"),
        pytest.param([pool("a", "mac", "XL"), pool("b", "xl", "Mac", day=1)], ["b"], id="order and case are nothing"),
        pytest.param([pool("a", "mac", "xl"), pool("b", "mac", day=1)], [], id="a part of a set is another set"),
        pytest.param([pool("a", "mac", deleted=True), pool("b", "mac", day=1)], [], id="one that goes is in no way"),
        pytest.param([pool("a", "mac"), pool("b", "mac", day=1, deleted=True)], [], id="a pool that goes has none"),
        pytest.param([pool("a", "mac"), pool("b", "mac", day=1, namespace="other")], [], id="each namespace by itself"),
        pytest.param([pool(n, "mac", day=d) for d, n in enumerate("abc")], ["b", "c"], id="all but the oldest"),
    ],
)  # fmt: skip
def test_conflicts(pools: list[RunnerPool], in_conflict: list[str]) -> None:
    for order in permutations(pools):
        assert sorted(label_conflicts(order)) == in_conflict


def test_the_sentence_names_the_other_pool_and_what_to_do() -> None:
    (sentence,) = label_conflicts([pool("a", "XL", "mac"), pool("b", "mac", "xl", day=1)]).values()

    assert sentence == (
        "pool a is older and has the same labels (mac, xl), so this pool gets no jobs. Change"
        " spec.labels of one of them."
    )
