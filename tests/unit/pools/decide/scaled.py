"""Pools, hosts and asks for the tests of scaling: what a test does not care about has a dull default."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import UNSET

from remuda.kube.core import Node, NodeSpec, NodeStatus, Overhead, RuntimeClass
from remuda.kube.meta import Condition, ObjectMeta
from remuda.kube.names import FLEET, VM
from remuda.kube.runner_pool import (
    Autoscaling,
    OperatingSystem,
    RunnerPool,
    RunnerPoolSpec,
    RunnerResources,
)
from remuda.pools.decide.allocation import Ask

if TYPE_CHECKING:
    from msgspec import UnsetType

GI = 1024**3
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
READY = Condition(type="Ready", status="True")
SCALED = Autoscaling(enabled=True, max_replicas=100)


def a_pool(
    name: str = "mac",
    *,
    fleet: str = "minis",
    os: OperatingSystem = OperatingSystem.DARWIN,
    autoscaling: Autoscaling = SCALED,
    deleted_at: datetime | None = None,
) -> RunnerPool:
    return RunnerPool(
        metadata=ObjectMeta(name=name, namespace="ci", uid=name, deletion_timestamp=deleted_at),
        spec=RunnerPoolSpec(
            image="image", fleet=fleet, labels=(name,), os=os, autoscaling=autoscaling
        ),
    )


def a_kata_pool(
    name: str = "kata",
    *,
    memory: str = "8Gi",
    runtime_class: str | UnsetType = "kata-qemu",
    autoscaling: Autoscaling = SCALED,
) -> RunnerPool:
    return RunnerPool(
        metadata=ObjectMeta(name=name, namespace="ci", uid=name),
        spec=RunnerPoolSpec(
            image="image",
            fleet="metal",
            labels=(name,),
            resources=RunnerResources(memory=memory),
            runtime_class_name=runtime_class,
            autoscaling=autoscaling,
        ),
    )


def a_runtime_class(overhead: str | UnsetType = UNSET) -> RuntimeClass:
    fixed = None if overhead is UNSET else Overhead(pod_fixed={"memory": overhead})
    return RuntimeClass(metadata=ObjectMeta(name="kata-qemu"), handler="kata", overhead=fixed)


def a_host(
    name: str = "host-1",
    *conditions: Condition,
    vms: str = "2",
    fleet: str = "minis",
    os: OperatingSystem = OperatingSystem.DARWIN,
    cordoned: bool = False,
    deleted_at: datetime | None = None,
) -> Node:
    labels = {FLEET: fleet, "kubernetes.io/os": os.value}
    return Node(
        metadata=ObjectMeta(name=name, labels=labels, deletion_timestamp=deleted_at),
        spec=NodeSpec(unschedulable=cordoned),
        status=NodeStatus(allocatable={VM: vms}, conditions=conditions or (READY,)),
    )


def a_metal_host(name: str, memory: str) -> Node:
    labels = {FLEET: "metal", "kubernetes.io/os": "linux"}
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        status=NodeStatus(allocatable={"memory": memory}, conditions=(READY,)),
    )


def ask(pool: str, cost: int, floor: int, load: int, target: int) -> Ask:
    """Return an ask in the order of the reference's vectors: cost, floor, load, target."""
    return Ask(pool=pool, cost=cost, floor=floor, load=load, target=target)
