from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.meta import Condition
from remuda.kube.runner_pool import OperatingSystem
from remuda.pools.decide.capacity import FILTERED_REASONS, Unit, cost_of, room, room_of, unit_of
from tests.unit.pools.decide.scaled import (
    GI,
    NOW,
    READY,
    a_host,
    a_kata_pool,
    a_metal_host,
    a_pool,
    a_runtime_class,
)

if TYPE_CHECKING:
    from remuda.kube.core import Node
    from remuda.kube.runner_pool import RunnerPool


def said(type_: str, status: str) -> Condition:
    return Condition(type=type_, status=status)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        pytest.param(a_host("a", READY, said("DiskPressure", "False")), "", id="a healthy host counts"),
        pytest.param(a_host("a", READY, cordoned=True), "unschedulable", id="not a cordoned one"),
        pytest.param(a_host("a", READY, deleted_at=NOW), "unschedulable", id="not one that goes"),
        pytest.param(a_host("a", said("Ready", "False")), "not_ready", id="not one that is not ready"),
        pytest.param(a_host("a", said("Ready", "Unknown")), "not_ready", id="not one that fell silent"),
        pytest.param(a_host("a", said("Other", "True")), "not_ready", id="not one that never said Ready"),
        pytest.param(a_host("a", READY, said("MemoryPressure", "True")), "memory_pressure", id="not short of memory"),
        pytest.param(a_host("a", READY, said("DiskPressure", "True")), "disk_pressure", id="not short of disk"),
        pytest.param(a_host("a", READY, said("PIDPressure", "True")), "pid_pressure", id="not short of processes"),
        pytest.param(a_host("bad"), "avoided", id="not one that is avoided"),
        pytest.param(a_host("a", vms="two"), "unreadable", id="not one whose capacity is no number"),
        pytest.param(a_host("a", vms="-1"), "unreadable", id="not one whose capacity is below none"),
        pytest.param(a_metal_host("a", "64Gi"), "unreadable", id="not one that offers no VMs"),
    ],
)  # fmt: skip
def test_which_hosts_count(host: Node, reason: str) -> None:
    found = room_of([host, a_host("good", vms="2")], Unit.VM, avoided={"bad"})

    assert found.room == room([2, 2] if not reason else [2])
    assert found.filtered == (((host.name, reason),) if reason else ())
    assert not reason or (reason in FILTERED_REASONS and found.count(reason) == 1)


def test_of_memory_a_tenth_is_left_to_others() -> None:
    found = room_of([a_metal_host("a", "100Gi")], Unit.MEMORY)

    assert found.room.free == 90 * GI
    assert (
        room_of([a_metal_host("a", "100Gi")], Unit.MEMORY, memory_percent=50).room.free == 50 * GI
    )


@pytest.mark.parametrize(
    ("pool", "overhead", "cost"),
    [
        pytest.param(a_pool(), None, 1, id="a VM takes one slot, whatever its size"),
        pytest.param(a_pool(os=OperatingSystem.LINUX), None, 1, id="a Linux VM of the agent too"),
        pytest.param(a_kata_pool(memory="8Gi"), "2560Mi", 8 * GI + 2560 * 1024**2, id="memory and overhead"),
        pytest.param(a_kata_pool(memory="8Gi"), "0", 8 * GI, id="a RuntimeClass without overhead adds none"),
        pytest.param(a_kata_pool(), None, None, id="without its RuntimeClass it is unknown"),
        pytest.param(a_kata_pool(), "much", None, id="with an overhead that is no quantity it is unknown"),
        pytest.param(a_kata_pool(memory="0"), "1Gi", None, id="a runner of nothing is unknown: it would fit anywhere"),
    ],
)  # fmt: skip
def test_cost(pool: RunnerPool, overhead: str | None, cost: int | None) -> None:
    assert cost_of(pool, None if overhead is None else a_runtime_class(overhead)) == cost


def test_a_runtime_class_that_says_nothing_of_overhead_adds_none() -> None:
    assert cost_of(a_kata_pool(memory="8Gi"), a_runtime_class()) == 8 * GI


def test_units() -> None:
    assert unit_of(a_pool()) is Unit.VM
    assert unit_of(a_pool(os=OperatingSystem.LINUX)) is Unit.VM
    assert unit_of(a_kata_pool()) is Unit.MEMORY


@pytest.mark.parametrize(
    ("free", "cost", "count", "left", "placed"),
    [
        pytest.param([12, 12], 16, 1, [12, 12], 0, id="two halves do not hold a whole"),
        pytest.param([16, 12], 16, 2, [12], 1, id="only the host that is large enough is used"),
        pytest.param(
            [10, 4], 4, 1, [10], 1, id="the fullest host is filled first: the others stay whole"
        ),
        pytest.param([10, 4], 4, 3, [2], 3, id="then the next"),
        pytest.param([10, 10, 10], 3, 4, [1, 7, 10], 4, id="one host is filled before the next"),
        pytest.param([5], 1, 0, [5], 0, id="nobody takes nothing"),
        pytest.param([], 1, 1, [], 0, id="without hosts nobody is placed"),
    ],
)
def test_place(free: list[int], cost: int, count: int, left: list[int], placed: int) -> None:
    assert room(free).place(cost, count) == (room(left), placed)


@given(
    free=st.lists(st.integers(0, 20), max_size=6),
    cost=st.integers(1, 8),
    count=st.integers(0, 30),
)
def test_placing_many_is_placing_one_by_one(free: list[int], cost: int, count: int) -> None:
    left, placed = room(free), 0
    for _ in range(count):
        left, one = left.place(cost, 1)
        placed += one

    assert room(free).place(cost, count) == (left, placed)
    assert left.free == sum(free) - placed * cost
    assert placed == min(count, sum(f // cost for f in free))
    assert left.fits(cost) == any(f >= cost for f, _ in left.levels)
