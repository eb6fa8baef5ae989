"""Pods as a pool makes them, for the benchmarks: about 3.4 KB of JSON each once the API server has stored them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.kube.core import (
    POD,
    Capabilities,
    Container,
    EmptyDir,
    EnvVar,
    Pod,
    PodSpec,
    Projected,
    ProjectedSource,
    ResourceRequirements,
    SecurityContext,
    TokenProjection,
    Toleration,
    Volume,
    VolumeMount,
)
from remuda.kube.meta import ObjectMeta, OwnerReference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.ports.kube import Kube

NAMESPACE = "default"
POOLS = 20


def runner_pod(number: int, batch: str = "runner") -> Pod:
    """Return a runner's Pod. It names a scheduler that does not exist, so that nothing else touches it."""
    pool = f"pool-{number % POOLS}"
    name = f"{pool}-{batch}-{number:05d}"
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            labels={
                "remuda.dev/runner": "true",
                "remuda.dev/pool": pool,
                "remuda.dev/template": f"{number % POOLS:08x}",
                "remuda.dev/bench": batch,
            },
            owner_references=(_owner(pool, number % POOLS),),
        ),
        spec=_spec(pool),
    )


def _owner(pool: str, number: int) -> OwnerReference:
    return OwnerReference(
        api_version="remuda.dev/v1alpha1",
        kind="RunnerPool",
        name=pool,
        uid=f"00000000-0000-4000-8000-{number:012d}",
        controller=True,
        block_owner_deletion=False,
    )


def _spec(pool: str) -> PodSpec:
    return PodSpec(
        service_account_name="default",
        automount_service_account_token=False,
        scheduler_name="nobody",
        restart_policy="Never",
        node_selector={"remuda.dev/fleet": "mac"},
        tolerations=(Toleration(key="remuda.dev/vm-host", operator="Exists", effect="NoSchedule"),),
        volumes=(_token_volume(), Volume(name="work", empty_dir=EmptyDir())),
        containers=(_container(pool),),
    )


def _token_volume() -> Volume:
    token = TokenProjection(path="token", audience="remuda-dispatch", expiration_seconds=3600)
    return Volume(
        name="dispatch-token",
        projected=Projected(sources=(ProjectedSource(service_account_token=token),)),
    )


def _container(pool: str) -> Container:
    return Container(
        name="runner",
        image=f"registry.example/runners/macos:{pool}@sha256:" + "0123456789abcdef" * 4,
        env=(EnvVar(name="REMUDA_POOL", value=pool),),
        resources=ResourceRequirements(
            requests={"cpu": "4", "memory": "8Gi", "remuda.dev/vm": "1"},
            limits={"memory": "8Gi", "remuda.dev/vm": "1"},
        ),
        volume_mounts=(
            VolumeMount(
                name="dispatch-token", mount_path="/var/run/secrets/remuda", read_only=True
            ),
            VolumeMount(name="work", mount_path="/work"),
        ),
        security_context=SecurityContext(
            allow_privilege_escalation=False, capabilities=Capabilities(drop=("ALL",))
        ),
    )


async def create_all(kube: Kube, pods: Iterable[Pod], *, at_once: int = 32) -> None:
    """Create Pods in parallel, ``at_once`` in flight."""
    waiting = iter(pods)

    async def worker() -> None:
        for pod in waiting:
            await kube.create(POD, pod)

    async with asyncio.TaskGroup() as group:
        for number in range(at_once):
            group.create_task(worker(), name=f"creator {number}")
