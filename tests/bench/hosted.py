"""
A host for the benchmarks of the agent: ``remuda agent`` in a process of its own, on the real control plane.

Pods are created bound, so that no scheduler is measured. Nobody hands out jobs: polls are held open, as those of warm
runners are.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kube_client.kubeconfig import load
from remuda.adapters.system import SystemClock
from remuda.kube.core import (
    NODE,
    POD,
    Container,
    Pod,
    PodSpec,
    Projected,
    ProjectedSource,
    ResourceRequirements,
    TokenProjection,
    Toleration,
    Volume,
)
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import VM
from remuda.ports.kube import KubeError, NotFound
from tests.support.agents import Agents, Host, processes_below
from tests.support.node_identity import node_identity
from tests.support.poll_server import a_poll_server
from tests.support.ranch import AGENT_RBAC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.support.control_plane import RealControlPlane

NAMESPACE = "default"
WAIT_S = 60.0
LOOK_S = 0.1
"""Seldom: who looks takes the time of those who work."""
UNHURRIED = (
    *("--heartbeat=10", "--status-interval=30", "--look-interval=5", "--resync=300"),
    "--stop-grace=10",
)
"""As the agent is run, where tests are impatient: what it does all day is part of what is measured."""
_numbers = count(1)


@dataclass(slots=True)
class Hosted:
    """One agent, and a client that may do everything."""

    kube: KubeClient
    agents: Agents
    host: Host
    image: str
    resources: Mapping[str, str]
    _made: count[int] = field(default_factory=lambda: count(1))

    @property
    def pid(self) -> int:
        """The process of the agent itself, not of what it started."""
        mark = f"--node-name={self.host.name} "
        [found] = [pid for pid, words in processes_below(self.host.folder).items() if mark in words]
        return found

    async def bind(self) -> Pod:
        """Create a Pod that is bound to the host, and return it once the server has answered."""
        size = {**self.resources, VM: "1"}
        token = TokenProjection(path="token", audience="remuda-dispatch", expiration_seconds=3600)
        source = ProjectedSource(service_account_token=token)
        pod = Pod(
            metadata=ObjectMeta(name=f"{self.host.name}-{next(self._made)}", namespace=NAMESPACE),
            spec=PodSpec(
                node_name=self.host.name,
                service_account_name="default",
                automount_service_account_token=False,
                restart_policy="Never",
                tolerations=(Toleration(operator="Exists"),),
                volumes=(Volume(name="token", projected=Projected(sources=(source,))),),
                containers=(
                    Container(
                        name="runner",
                        image=self.image,
                        resources=ResourceRequirements(requests=size, limits=size),
                    ),
                ),
            ),
        )
        return await self.kube.create(POD, pod)

    async def remove(self, pods: Sequence[Pod]) -> None:
        """Delete Pods, and wait until the agent has let go of them: then nothing of their VMs is left."""
        for pod in pods:
            await self.kube.delete(POD, pod.name, namespace=pod.namespace)
        for pod in pods:
            async with asyncio.timeout(WAIT_S):
                while not await self._is_gone(pod):
                    await SystemClock().sleep(LOOK_S)

    async def _is_gone(self, pod: Pod) -> bool:
        with suppress(NotFound):
            await self.kube.get(POD, pod.name, namespace=pod.namespace)
            return False
        return True


@asynccontextmanager
async def hosted(
    plane: RealControlPlane,
    folder: Path,
    *,
    options: Iterable[str],
    image: str,
    resources: Mapping[str, str],
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Hosted]:
    """Start an agent and wait until it is ready."""
    await asyncio.to_thread(plane.kubectl, "apply", f"--filename={AGENT_RBAC}")
    name = f"bench-{next(_numbers)}"
    identity = node_identity(plane, name)
    kube = KubeClient(HttpWire(load(plane.access.kubeconfig)))
    try:
        async with a_poll_server() as dispatch:
            given = (f"--fleet={name}", f"--dispatch-url={dispatch.url}", *UNHURRIED, *options)
            host = Host(
                name=name,
                folder=folder / name,
                kubeconfig=identity.kubeconfig,
                options=given,
                env=env or {},
            )
            host.folder.mkdir(parents=True)
            with Agents() as agents:
                agents.add(host)
                agents.start(name)
                await agents.ready(name)
                yield Hosted(kube, agents, host, image, resources)
    finally:
        with suppress(KubeError):
            await kube.delete(NODE, name)
        await kube.close()
