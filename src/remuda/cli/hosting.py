"""Joins the agent's parts to the outside world: API server, dispatch, driver, HTTP."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kubelet_gate import Gate
from remuda.adapters.kubelet_server import KubeletEndpoint, serving_kubelet
from remuda.adapters.poll_client import PollClient
from remuda.adapters.serving_certificate import ServingCertificate
from remuda.adapters.stage_socket import serving_stage
from remuda.adapters.status_server import Ready, Status, serving_status
from remuda.adapters.system import SystemClock, SystemIds
from remuda.agent.metrics import AgentMetrics
from remuda.agent.process import Agent, AgentPorts
from remuda.cli.drivers import driver
from remuda.control.health import Health

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remuda.adapters.kube_client import Connection
    from remuda.adapters.poll_client import PollSettings
    from remuda.adapters.status_server import Listen
    from remuda.agent.settings import AgentSettings
    from remuda.cli.drivers import DriverSettings
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """Everything the command was told, read and checked."""

    connection: Connection
    lease_connection: Connection
    """The same once more, for the thread that renews the Lease: no credential is asked for on two loops at once."""
    agent: AgentSettings
    driver: DriverSettings
    dispatch: PollSettings
    listen: Listen
    kubelet: Listen
    """Where logs are served to the API server."""
    kubelet_client_ca: Path | None
    """Who signs the API server's certificate; None: no logs are served."""


async def host(command: AgentCommand) -> None:
    """Run the agent until cancelled. Its VMs go on."""
    clock, ids = SystemClock(), SystemIds()
    settings = command.agent
    metrics = AgentMetrics(CollectorRegistry())
    ProcessCollector(registry=metrics.registry)
    health = Health(clock)
    async with AsyncExitStack() as stack:
        wire = HttpWire(command.connection)
        stack.push_async_callback(wire.close)
        desks = PollClient(command.dispatch)
        stack.push_async_callback(desks.close)
        made = driver(command.driver, clock, ids)
        ports = AgentPorts(
            kube=KubeClient(wire),
            lease_kube=lambda: _connected(command.lease_connection),
            vms=made.vms,
            vm_folders=made.folders,
            desks=desks,
            clock=clock,
            ids=ids,
            version=version("remuda"),
        )
        agent = Agent(ports, settings, metrics=metrics, health=health)
        stack.callback(agent.close)
        status = Status(
            metrics.registry,
            lambda: health.problems(clock.monotonic()),
            lambda: Ready(*agent.ready()),
        )
        address = await stack.enter_async_context(serving_status(command.listen, status))
        port = await stack.enter_async_context(_serving_logs(command, agent, wire, clock))
        await stack.enter_async_context(serving_stage(settings.data, agent.stage))
        _tell(command, address, port)
        await agent.run(port)


def _tell(command: AgentCommand, address: str, port: int) -> None:
    settings, abilities = command.agent, command.driver.name
    log.info(
        "started",
        node=settings.node,
        fleet=settings.fleet,
        driver=abilities,
        vms=settings.offer.vms,
        server=command.connection.server,
        dispatch=command.dispatch.base_url,
        data=str(settings.data),
        status=address,
        logs_port=port or "none: no --kubelet-client-ca",
    )
    if command.driver.name == "process":
        log.warning("guests are not isolated", why="the process driver is for demonstrations")


@asynccontextmanager
async def _connected(connection: Connection) -> AsyncIterator[Kube]:
    wire = HttpWire(connection)
    try:
        yield KubeClient(wire)
    finally:
        await wire.close()


@asynccontextmanager
async def _serving_logs(
    command: AgentCommand, agent: Agent, wire: HttpWire, clock: SystemClock
) -> AsyncIterator[int]:
    """Serve logs to the API server for as long as the block lasts; gives the port, 0 if they are not served."""
    if command.kubelet_client_ca is None:
        yield 0
        return
    settings = command.agent
    names = tuple(name for name in (settings.address, settings.node) if name)
    endpoint = KubeletEndpoint(
        listen=command.kubelet,
        certificate=ServingCertificate(settings.data / "pki", names, clock),
        client_ca=command.kubelet_client_ca,
    )
    gate = Gate(settings.node, wire, clock)
    async with serving_kubelet(endpoint, agent.logs, gate, clock) as port:
        yield port
