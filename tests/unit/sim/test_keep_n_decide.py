from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.kube.meta import ObjectMeta
from remuda.sim.scenarios.keep_n.decide import CreateHorse, DeleteHorse, decide
from remuda.sim.scenarios.keep_n.things import ConfigMap, a_herd

if TYPE_CHECKING:
    from collections.abc import Sequence

HERD = a_herd("herd", copies=2, brand="b")


def a_horse(number: int, *, brand: str = "b", rider: str = "") -> ConfigMap:
    meta = ObjectMeta(name=f"herd-{number}", uid=f"uid-{number}", resource_version=f"{number}00")
    horse = ConfigMap(metadata=meta, data={"brand": brand})
    return replace(horse, data={**horse.data, "rider": rider}) if rider else horse


@pytest.mark.parametrize(
    ("horses", "deleted", "created"),
    [
        pytest.param([], [], ["herd-0", "herd-1"], id="an empty herd is filled"),
        pytest.param([a_horse(0), a_horse(1)], [], [], id="a full herd is left alone"),
        pytest.param([a_horse(1)], [], ["herd-0"], id="a gap is filled by its own name"),
        pytest.param([a_horse(0), a_horse(1), a_horse(7)], ["herd-7"], [], id="a stray goes"),
        pytest.param([a_horse(0), a_horse(1, brand="a")], ["herd-1"], [], id="an old brand goes"),
        pytest.param([a_horse(0), a_horse(1, brand="a", rider="r")], [], [], id="a ridden one stays"),
    ],
)  # fmt: skip
def test_decide(horses: list[ConfigMap], deleted: list[str], created: list[str]) -> None:
    actions = decide(HERD, horses)

    assert [a.name for a in actions if isinstance(a, DeleteHorse)] == deleted
    assert [a.name for a in actions if isinstance(a, CreateHorse)] == created


def test_a_delete_carries_what_was_seen() -> None:
    (action,) = decide(HERD, [a_horse(0), a_horse(1), a_horse(7)])

    assert isinstance(action, DeleteHorse)
    assert (action.seen.uid, action.seen.resource_version) == ("uid-7", "700")


@given(st.permutations([a_horse(0, brand="a"), a_horse(1, brand="a"), a_horse(7), a_horse(8)]))
def test_input_order_does_not_matter(horses: Sequence[ConfigMap]) -> None:
    assert decide(HERD, horses) == decide(HERD, list(reversed(horses)))
