"""
The whole of it: a real control plane, the operator, dispatch on PostgreSQL, and hosts with real agents.

Control plane and PostgreSQL are shared by a test session; namespace, fleet and hosts are a test's own.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kube_client.kubeconfig import load
from remuda.adapters.postgres.api_tokens import PostgresApiTokens
from remuda.adapters.postgres.pool import URL_VARIABLE, DatabaseSettings, open_database
from remuda.adapters.system import SystemClock
from remuda.kube.core import EVENT, NAMESPACE, NODE, POD, SERVICE_ACCOUNT, Namespace
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import POOL
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import KubeError, Manifest, NotFound, Query
from tests.support.agents import Agents, Host
from tests.support.control_plane import REPOSITORY
from tests.support.dispatched import OVER, controller_token
from tests.support.eventually import eventually
from tests.support.history import is_alive, is_warm
from tests.support.manifests import a_pool
from tests.support.node_identity import node_identity
from tests.support.operators import Operators
from tests.support.servers import Api, Servers, a_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from remuda.adapters.postgres.pool import Database
    from remuda.kube.core import Node, Pod
    from tests.support.control_plane import RealControlPlane
    from tests.support.raw import Json

AGENT_RBAC = REPOSITORY / "docs/howto/agent-rbac.yaml"
SERVER = "one"
WAIT_S = 120.0
_numbers = count(1)


@dataclass(slots=True)
class Ranch:
    """What a test plays on."""

    plane: RealControlPlane
    kube: KubeClient
    namespace: str
    folder: Path
    servers: Servers
    operators: Operators
    agents: Agents
    database: Database
    api: Api

    # --- hosts ---

    def add_host(
        self,
        *options: str,
        name: str = "",
        env: Mapping[str, str] | None = None,
        starts: bool = True,
    ) -> str:
        """Make a host with its own node identity, and start its agent. Returns the Node's name."""
        full = f"{self.namespace}-{name or f'host-{len(self.agents.names) + 1}'}"
        folder = self.folder / full
        folder.mkdir(parents=True)
        identity = node_identity(self.plane, full)
        given = (
            f"--fleet={self.namespace}",
            f"--dispatch-url={self.servers.url(SERVER)}",
            f"--kubelet-client-ca={identity.client_ca}",
        )
        host = Host(
            name=full,
            folder=folder,
            kubeconfig=identity.kubeconfig,
            options=(*given, *options),
            env=env or {},
        )
        self.agents.add(host)
        if starts:
            self.agents.start(full)
        return full

    async def node(self, name: str) -> Node | None:
        try:
            return await self.kube.get(NODE, name)
        except NotFound:
            return None

    # --- pools and runners ---

    async def create_pool(self, name: str, replicas: int, **spec: Json) -> None:
        wanted = {
            "os": "linux",
            "fleet": self.namespace,
            "replicas": replicas,
            "labels": [name],
            "provisioning": {"maxConcurrent": 100, "startTimeoutSeconds": 0},
            "resources": {"cpu": 1, "memory": "128Mi"},
        }
        body = json.dumps(a_pool(name, **{**wanted, **spec})).encode()
        await self.kube.create(RUNNER_POOL, Manifest(body, self.namespace))

    async def delete_pool_only(self, name: str) -> None:
        """Delete it, and wait for nothing."""
        await self.kube.delete(RUNNER_POOL, name, namespace=self.namespace)

    async def delete_pool(self, name: str) -> None:
        """Delete it, and wait until none of its runners is left."""
        await self.delete_pool_only(name)
        await self.until_pods(lambda pods: not [p for p in pods if p.labels.get(POOL) == name])

    async def pods(self) -> list[Pod]:
        listed = await self.kube.list(POD, Query(namespace=self.namespace))
        return list(listed.items)

    async def pod(self, name: str) -> Pod | None:
        try:
            return await self.kube.get(POD, name, namespace=self.namespace)
        except NotFound:
            return None

    async def until_pods(
        self, met: Callable[[list[Pod]], bool], within_s: float = WAIT_S
    ) -> list[Pod]:
        """Wait until the Pods are as wanted, and return them."""

        async def probe() -> list[Pod]:
            assert self.agents.crashed() == []
            return await self.pods()

        return await eventually(probe, met, within_s=within_s)

    async def warm(self, pool: str, number: int = 1, within_s: float = WAIT_S) -> list[Pod]:
        """Wait until so many runners of a pool wait for a job, and return them."""

        def waiting(pods: list[Pod]) -> list[Pod]:
            return [p for p in pods if p.labels.get(POOL) == pool and is_alive(p) and is_warm(p)]

        return waiting(await self.until_pods(lambda pods: len(waiting(pods)) >= number, within_s))

    async def events(self, pod: str = "") -> list[tuple[str, str]]:
        """
        Return reason and message of the Events about a Pod, or of all in the namespace, the first first.

        They bear whole seconds: those of one second are in no order.
        """
        listed = await self.kube.list(EVENT, Query(namespace=self.namespace))
        about = [e for e in listed.items if not pod or e.involved_object.name == pod]
        about.sort(key=lambda e: str(e.first_timestamp))
        return [(e.reason, e.message) for e in about]

    # --- jobs ---

    async def post(self, pool: str, script: str, **more: Any) -> str:  # noqa: ANN401 - JSON
        """Submit a job, and return its ID."""
        await eventually(
            self._known_pools, lambda pools: pool in pools
        )  # it hears of a new one by a watch
        job = await self.api.post("/api/v1/jobs", {"pool": pool, "script": script, **more})
        return str(job["id"])

    async def until_job(self, job_id: str, *states: str, within_s: float = WAIT_S) -> Any:  # noqa: ANN401 - JSON
        """Wait for a job to be in one of these states, over if none is given."""
        wanted = frozenset(states) or OVER

        async def probe() -> Any:  # noqa: ANN401 - JSON
            assert self.agents.crashed() == []
            return await self.api.get(f"/api/v1/jobs/{job_id}")

        return await eventually(probe, lambda job: job["state"] in wanted, within_s=within_s)

    async def _known_pools(self) -> set[str]:
        return {pool["name"] for pool in (await self.api.get("/api/v1/pools"))["pools"]}

    async def session(self, pod: str, within_s: float = WAIT_S) -> Any:  # noqa: ANN401 - JSON
        """Wait until dispatch knows how a runner that had a job ended: its job, its exit code, why."""

        async def probe() -> Any:  # noqa: ANN401 - JSON
            return (await self.api.get(f"/api/v1/runners/{pod}"))["session"]

        return await eventually(probe, lambda s: s and s["ended_at"] is not None, within_s=within_s)

    async def output(self, job_id: str) -> str:
        return await self.api.text(f"/api/v1/jobs/{job_id}/logs")


@asynccontextmanager
async def a_ranch(plane: RealControlPlane, database_url: str, folder: Path) -> AsyncIterator[Ranch]:
    """Start operator and dispatch in a namespace of their own; the test adds hosts and pools."""
    plane.kubectl("apply", f"--filename={AGENT_RBAC}")
    namespace = f"ranch-{next(_numbers)}"
    admin = plane.access.kubeconfig
    settings = DatabaseSettings(url=database_url, connections_min=1, connections_max=2)
    async with AsyncExitStack() as stack:
        kube = KubeClient(HttpWire(load(admin)))
        stack.push_async_callback(kube.close)
        await kube.create(NAMESPACE, Namespace(metadata=ObjectMeta(name=namespace)))
        await eventually(lambda: _exists(kube, namespace))
        database = await stack.enter_async_context(open_database(settings))
        token = await a_token(PostgresApiTokens(database, SystemClock()))
        token_file = folder / "controller-token"
        token_file.write_text(await controller_token(kube, namespace))
        env = {URL_VARIABLE: database_url}
        servers = stack.enter_context(Servers(folder / "servers", admin, namespace, env))
        servers.start(SERVER)
        url = servers.url(SERVER)
        operators = stack.enter_context(
            Operators(folder / "operators", admin, namespace, url, token_file, 1)
        )
        agents = Agents()
        stack.push_async_callback(_remove_nodes, kube, agents)
        stack.enter_context(agents)
        await servers.ready(SERVER)
        yield Ranch(
            plane=plane,
            kube=kube,
            namespace=namespace,
            folder=folder,
            servers=servers,
            operators=operators,
            agents=agents,
            database=database,
            api=Api(url, token),
        )
        assert operators.crashed() == []
        assert agents.crashed() == []


async def _remove_nodes(kube: KubeClient, agents: Agents) -> None:
    for name in agents.names:
        try:
            await kube.delete(NODE, name)
        except KubeError:
            continue


async def _exists(kube: KubeClient, namespace: str) -> bool:
    try:
        await kube.get(SERVICE_ACCOUNT, "default", namespace=namespace)
    except NotFound:
        return False
    return True
