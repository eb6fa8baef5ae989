from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET

from remuda.kube.meta import Condition
from remuda.kube.runner_pool import Autoscaling, OperatingSystem, Schedule
from remuda.pools.decide.siblings import FleetSeen, Wanted, wanted, wanted_by_pool
from remuda.ports.dispatch import Signals
from tests.unit.pools.decide.scaled import (
    NOW,
    a_host,
    a_kata_pool,
    a_metal_host,
    a_pool,
    a_runtime_class,
)

if TYPE_CHECKING:
    from remuda.kube.core import Node
    from remuda.kube.runner_pool import RunnerPool

BUSY = Signals(occupied=4, p95_concurrent_last_hour=4)
IDLE = Signals(p95_concurrent_last_hour=4)

HOSTS = (a_host("host-1"), a_host("host-2"), a_host("host-3"))
MACS = FleetSeen(
    pools=(a_pool("mac"), a_pool("idle")),
    signals={"mac": BUSY, "idle": IDLE},
    nodes=HOSTS,
)
"""Six slots: mac's load of 4, then a floor of one for idle, then one more. Each one's own target is 5."""

METAL = FleetSeen(
    pools=(a_kata_pool("kata", memory="8Gi"), a_kata_pool("idle", memory="8Gi")),
    signals={"kata": BUSY, "idle": IDLE},
    nodes=(a_metal_host("metal-1", "40Gi"), a_metal_host("metal-2", "22Gi")),
    runtime_classes={"kata-qemu": a_runtime_class("1Gi")},
)
"""Four runners of 9 GiB fit into 36 GiB and two into 19.8 GiB: six slots again."""


def of(name: str, seen: FleetSeen) -> Wanted:
    decided = wanted(name, seen, NOW)
    assert decided == wanted_by_pool(seen, NOW).get(name, decided), "one by one or all at once"
    return decided


def test_siblings_share_their_hosts() -> None:
    assert (of("mac", MACS).replicas, of("idle", MACS).replicas) == (4, 2)
    assert (of("kata", METAL).replicas, of("idle", METAL).replicas) == (4, 2)


def test_the_decision_says_from_what_it_follows() -> None:
    assert of("mac", MACS) == Wanted(
        replicas=4,
        why="jobs need 4, its target is 5, the fleet has room for 4",
        load=4,
        floor=1,
        target=5,
    )


NOT_READY = Condition(type="Ready", status="Unknown")
SILENT = tuple(a_host(f"silent-{n}", NOT_READY) for n in range(3))
HOLD = None


@pytest.mark.parametrize(
    ("seen", "mac", "idle"),
    [
        pytest.param(MACS, 4, 2, id="all is known: they share"),
        pytest.param(replace(MACS, signals={"mac": None, "idle": IDLE}), HOLD, 5,
                     id="own demand unknown: hold; a sibling's unknown: its own target"),
        pytest.param(replace(MACS, signals={"idle": IDLE}), HOLD, 5, id="demand never asked for is unknown"),
        pytest.param(replace(MACS, signals={}), HOLD, HOLD, id="no demand known: all hold"),
        pytest.param(replace(MACS, nodes=None), 5, 5, id="hosts unknown: own target"),
        pytest.param(replace(MACS, nodes=()), 5, 5, id="no hosts listed: own target, a blip must not shrink a fleet"),
        pytest.param(replace(MACS, nodes=SILENT), 5, 5, id="no healthy host: own target"),
        pytest.param(replace(MACS, nodes=(a_host("a", vms="0"),)), 5, 5, id="hosts without a slot: own target"),
        pytest.param(replace(MACS, nodes=(*HOSTS, *SILENT)), 4, 2, id="unhealthy hosts add no room"),
        pytest.param(replace(MACS, avoided=frozenset({"host-3"})), 4, 0, id="an avoided host is no room"),
    ],
)  # fmt: skip
def test_failure_directions(seen: FleetSeen, mac: int | None, idle: int | None) -> None:
    assert (of("mac", seen).replicas, of("idle", seen).replicas) == (mac, idle)


@pytest.mark.parametrize(
    ("seen", "kata", "idle"),
    [
        pytest.param(METAL, 4, 2, id="all is known: they share"),
        pytest.param(replace(METAL, runtime_classes={}), HOLD, HOLD, id="cost unknown: hold"),
        pytest.param(
            replace(METAL, pools=(METAL.pools[0], a_kata_pool("idle", runtime_class="gone"))), HOLD, HOLD,
            id="a sibling's cost unknown: hold",
        ),
        pytest.param(
            replace(METAL, pools=(METAL.pools[0], a_kata_pool("idle", runtime_class="gone")), nodes=None), HOLD, HOLD,
            id="cost and hosts unknown: hold, the more careful of the two",
        ),
        pytest.param(
            replace(METAL, signals={"kata": BUSY}, runtime_classes={}), HOLD, HOLD,
            id="cost and a sibling's demand unknown: hold",
        ),
        pytest.param(
            replace(METAL, pools=(METAL.pools[0], a_kata_pool(
                "idle", runtime_class="gone", autoscaling=Autoscaling(enabled=False)))), 5, HOLD,
            id="the cost of a pool that is not scaled does not matter",
        ),
        pytest.param(
            replace(METAL, runtime_classes={"kata-qemu": a_runtime_class("2Gi")}), 4, 0,
            id="the overhead counts: of 10 GiB each, three and one fit, all for the load",
        ),
    ],
)  # fmt: skip
def test_failure_directions_of_cost(seen: FleetSeen, kata: int | None, idle: int | None) -> None:
    assert (of("kata", seen).replicas, of("idle", seen).replicas) == (kata, idle)


def test_what_fits_on_hosts_counts_and_not_the_sum() -> None:
    large = replace(
        METAL,
        pools=(a_kata_pool("idle", memory="15Gi"),),
        nodes=(a_metal_host("metal-1", "14Gi"), a_metal_host("metal-2", "20Gi")),
    )

    assert of("idle", large).replicas == 1, "16 GiB fit into 18 of the second host, not into 12.6"


@pytest.mark.parametrize(
    ("other", "replicas"),
    [
        pytest.param(a_pool("two"), 4, id="a sibling takes its share"),
        pytest.param(a_pool("two", fleet="other"), 5, id="a pool of another fleet takes none"),
        pytest.param(a_pool("two", os=OperatingSystem.LINUX), 5, id="nor one of another system"),
        pytest.param(a_pool("two", deleted_at=NOW), 5, id="nor one that is being deleted"),
        pytest.param(a_pool("two", autoscaling=Autoscaling(enabled=False)), 5, id="nor one that is not scaled"),
        pytest.param(a_pool("two", autoscaling=Autoscaling(enabled=True)), 5, id="nor one without a maximum"),
        pytest.param(a_kata_pool("two"), 5, id="nor one of another unit"),
    ],
)  # fmt: skip
def test_who_is_a_sibling(other: RunnerPool, replicas: int) -> None:
    seen = replace(MACS, pools=(a_pool("mac"), other))
    crowded = replace(seen, signals={"mac": BUSY, "two": Signals(queued=2)})

    assert of("mac", crowded).replicas == replicas


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        pytest.param(a_pool(deleted_at=NOW), "the pool is being deleted", id="a deleted pool"),
        pytest.param(
            a_pool(autoscaling=Autoscaling(enabled=False, max_replicas=9)), "autoscaling is off",
            id="a pool that a person scales",
        ),
        pytest.param(
            a_pool(autoscaling=Autoscaling(enabled=True, max_replicas=UNSET)),
            "autoscaling has no maxReplicas, so replicas are left alone",
            id="D1: without a maximum hands off, where the reference scaled to none",
        ),
        pytest.param(
            a_pool(autoscaling=Autoscaling(enabled=True, max_replicas=0)),
            "autoscaling has no maxReplicas, so replicas are left alone",
            id="D1: a maximum of none that slipped in is hands off too",
        ),
    ],
)  # fmt: skip
def test_who_is_left_alone(pool: RunnerPool, why: str) -> None:
    seen = replace(MACS, pools=(pool,))

    assert of("mac", seen) == Wanted(replicas=None, why=why)


def test_a_pool_that_is_not_there_is_left_alone() -> None:
    assert wanted("gone", MACS, NOW).replicas is None


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(a_host("host-9", vms="20", fleet="other"), id="a host of another fleet"),
        pytest.param(a_host("host-9", vms="20", os=OperatingSystem.LINUX), id="one of another system"),
        pytest.param(a_metal_host("host-9", "640Gi"), id="one that runs no VMs"),
    ],
)  # fmt: skip
def test_which_hosts_are_no_room(other: Node) -> None:
    assert of("mac", replace(MACS, nodes=(*HOSTS, other))).replicas == 4
    assert of("mac", replace(MACS, nodes=(*HOSTS, a_host("host-9", vms="20")))).replicas == 5
    none = of("mac", replace(MACS, nodes=(other,)))
    assert none.why.endswith("no host of the fleet is healthy")


def test_vm_pools_and_kata_pools_of_one_fleet_do_not_share() -> None:
    vms = a_pool("vm", fleet="metal", os=OperatingSystem.LINUX)
    slots = a_host("vm-host", vms="4", fleet="metal", os=OperatingSystem.LINUX)
    both = replace(
        METAL,
        pools=(*METAL.pools, vms),
        signals={**METAL.signals, "vm": BUSY},
        nodes=(*(METAL.nodes or ()), slots),
    )

    assert {name: w.replicas for name, w in wanted_by_pool(both, NOW).items()} == {
        "kata": 4,
        "idle": 2,
        "vm": 4,
    }


def test_a_schedule_in_force_moves_the_floor_and_a_bad_one_is_told() -> None:
    noon = Schedule(name="noon", cron="0 12 * * *", duration_seconds=600, min_warm=3)
    bad = Schedule(name="bad", cron="99 * * * *", duration_seconds=600, min_warm=50)
    scaled = Autoscaling(enabled=True, max_replicas=100, schedules=(noon, bad))
    seen = replace(MACS, pools=(a_pool("mac", autoscaling=scaled),))

    decided = of("mac", seen)

    assert (decided.floor, decided.target, decided.replicas) == (3, 7, 6)
    assert decided.faults == ("schedule bad: '99 * * * *' cannot be read: Bad minute",)
