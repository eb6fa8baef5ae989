"""The host operator's process, put together: clients, SSH, identities, the operator, and what it serves."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from remuda.adapters.github.builders import BuilderTokens
from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.scaleway.client import ScalewayMachines
from remuda.adapters.ssh import SshShells
from remuda.adapters.status_server import Ready, Status, serving_status
from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.folder_identities import FolderIdentities
from remuda.cli.stopping import until_told_to_stop
from remuda.control.health import Health
from remuda.control.preflight import Preflight
from remuda.hosts.identity import Server, SignedIdentities
from remuda.hosts.metrics import HostMetrics
from remuda.hosts.operator import HostOperator, HostPorts
from remuda.hosts.over_ssh import SshConverger
from remuda.hosts.parts import PARTS
from remuda.hosts.permissions import rights
from remuda.hosts.registration import AppRegistrations

if TYPE_CHECKING:
    from remuda.adapters.kube_client import Connection
    from remuda.cli.hosts_operate import HostsCommand
    from remuda.hosts.identity import Identities
    from remuda.ports.kube import Kube

log = structlog.get_logger(__name__)


def run(command: HostsCommand) -> None:
    """Operate until told to stop."""
    if asyncio.run(until_told_to_stop(_run(command))):
        log.info("stopped")


async def _run(command: HostsCommand) -> None:
    clock, ids = SystemClock(), SystemIds()
    metrics = HostMetrics(CollectorRegistry())
    ProcessCollector(registry=metrics.registry)
    health = Health(clock)
    async with AsyncExitStack() as stack:
        # The election has connections of its own: a burst of work must not starve a renewal.
        kube, election_kube = (_kube(command.connection, stack) for _ in range(2))
        machines: ScalewayMachines | None = None
        if command.scaleway is not None:
            machines = ScalewayMachines(command.scaleway)
            stack.push_async_callback(machines.close)
        server = Server(command.node_server, command.connection.ca_pem)

        def identities(fenced: Kube) -> Identities:
            if command.pki is not None:
                return FolderIdentities(fenced, server, clock, command.pki)
            life = command.hosts.credential_life
            return SignedIdentities(fenced, server, clock=clock, ids=ids, life=life)

        converger = SshConverger(SshShells, command.config, PARTS, clock=clock)
        ports = HostPorts(
            kube=kube,
            election_kube=election_kube,
            machines=machines,
            converger=converger,
            identities=identities,
            registrations=AppRegistrations(kube, BuilderTokens(clock, command.github.api_url)),
            clock=clock,
            ids=ids,
        )
        operator = HostOperator(ports, command.hosts, metrics=metrics, health=health)
        allowed = rights(command.hosts, signs=command.pki is None)
        preflight = Preflight(kube, allowed, ids=ids, health=health)
        status = Status(
            metrics.registry,
            lambda: health.problems(clock.monotonic()),
            lambda: _ready(preflight, operator),
        )
        address = await stack.enter_async_context(serving_status(command.listen, status))
        log.info(
            "started",
            namespace=command.hosts.namespace,
            identity=command.hosts.identity,
            server=command.connection.server,
            config=converger.config_hash[:12],
            rented="scaleway" if machines is not None else "none: no --scaleway-token-file",
            status=address,
        )
        await preflight.run()
        await operator.run()


def _kube(connection: Connection, stack: AsyncExitStack) -> KubeClient:
    wire = HttpWire(connection)
    stack.push_async_callback(wire.close)
    return KubeClient(wire)


def _ready(preflight: Preflight, operator: HostOperator) -> Ready:
    if not preflight.done:
        return Ready(ok=False, says=str(preflight.obstacle or "starting"))
    return Ready(*operator.ready())
