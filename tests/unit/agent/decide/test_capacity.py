"""What a host offers, and the size of a VM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.decide.capacity import HostOffer, Slots, allocatable, capacity, shape_of, slots
from remuda.kube.core import ResourceRequirements
from remuda.ports.vms import Abilities, VmShape

OFFER = HostOffer(cpus=8, memory_mib=14336, vms=2, pods=10)
MAC = Abilities(
    runtime="tart",
    guest_os=frozenset({"darwin", "linux"}),
    isolated=True,
    vms_max=2,
    pulls=True,
    shared_goldens=False,
    sees_guest_disk=True,
)


@pytest.mark.parametrize(
    ("ours", "foreign", "offered", "free"),
    [
        pytest.param(0, 0, 2, 2, id="an empty host"),
        pytest.param(1, 0, 2, 1, id="one of ours"),
        pytest.param(0, 1, 1, 1, id="somebody else's VM takes a slot"),
        pytest.param(2, 1, 2, 0, id="nothing is taken from under our own"),
        pytest.param(0, 5, 0, 0, id="a host that others have filled offers nothing"),
        pytest.param(3, 0, 2, 0, id="more of ours than there are slots offers no more"),
    ],
)
def test_slots(ours: int, foreign: int, offered: int, free: int) -> None:
    found = slots(OFFER, MAC, ours=ours, foreign=foreign)
    assert (found.offered, found.free) == (offered, free)


def test_the_lower_limit_wins() -> None:
    many = HostOffer(cpus=8, memory_mib=14336, vms=100, pods=200)
    assert slots(many, MAC, ours=0, foreign=0).most == 2


def test_without_a_limit_of_the_driver_others_take_no_slot() -> None:
    plain = Abilities(
        runtime="qemu",
        guest_os=frozenset({"linux"}),
        isolated=True,
        vms_max=None,
        pulls=True,
        shared_goldens=True,
        sees_guest_disk=False,
    )
    assert slots(OFFER, plain, ours=0, foreign=9).free == 2


@given(*[st.integers(0, 5)] * 3)
def test_what_is_offered_is_never_more_than_there_is(most: int, ours: int, foreign: int) -> None:
    found = Slots(most=most, ours=ours, foreign=foreign)
    assert 0 <= found.free <= found.offered <= most
    assert found.offered >= min(ours, most)


def test_a_node_says_what_it_has_and_what_may_be_taken() -> None:
    found = slots(OFFER, MAC, ours=0, foreign=1)
    assert capacity(OFFER, found, 1000) == {
        "cpu": "8",
        "memory": "14336Mi",
        "pods": "10",
        "remuda.dev/vm": "2",
        "ephemeral-storage": "1000",
    }
    assert allocatable(OFFER, found, None) == {
        "cpu": "8",
        "memory": "14336Mi",
        "pods": "10",
        "remuda.dev/vm": "1",
    }


@pytest.mark.parametrize(
    ("limits", "requests", "shape"),
    [
        pytest.param({}, {}, VmShape(), id="nothing said: as the image says"),
        pytest.param({"cpu": "4", "memory": "8Gi"}, {}, VmShape(cpus=4, memory_mib=8192), id="limits"),
        pytest.param({}, {"cpu": "4"}, VmShape(cpus=4), id="requests where there is no limit"),
        pytest.param({"cpu": "2"}, {"cpu": "4"}, VmShape(cpus=2), id="limits before requests"),
        pytest.param({"cpu": "3900m"}, {}, VmShape(cpus=3), id="parts of a CPU are rounded down"),
        pytest.param({"cpu": "500m"}, {}, VmShape(), id="less than one CPU is none"),
        pytest.param({"memory": "1000M"}, {}, VmShape(memory_mib=953), id="bytes are rounded down"),
        pytest.param({"cpu": "many"}, {"cpu": "4"}, VmShape(cpus=4), id="what is no quantity is not said"),
        pytest.param({"cpu": "-4"}, {}, VmShape(), id="less than nothing is nothing"),
    ],
)  # fmt: skip
def test_shape_of(limits: dict[str, str], requests: dict[str, str], shape: VmShape) -> None:
    assert shape_of(ResourceRequirements(limits=limits, requests=requests)) == shape
