"""The runners' poll on a real socket: route, desk and identities, on whatever store and cluster are given."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from remuda.adapters.http_server import serving_http
from remuda.adapters.kube_client import KubeClient
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock, SystemIds
from remuda.dispatch.api.app import Process, build_app
from remuda.dispatch.api.polls import poll_routes
from remuda.dispatch.api.ready import Ready
from remuda.dispatch.desk import Desk
from remuda.dispatch.identity import Identities
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.settings import DispatchSettings
from remuda.dispatch.stamps import Stamps
from remuda.dispatch.view import DispatchView
from remuda.kube.core import POD, SERVICE_ACCOUNT, Container, Pod, PodSpec, ServiceAccount
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import AUDIENCE, OWNER, POOL, RUNNER
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.job import Kind, Os, Size
from remuda.ports.kube import BoundPod
from remuda.sim.fleet.furnish import a_pool, furnish
from remuda.sim.jobs.api_tokens import MemoryApiTokens
from remuda.sim.jobs.registrations import MemoryRegistrations
from remuda.sim.jobs.store import MemoryJobs
from remuda.sim.jobs.tables import Tables
from remuda.sim.jobs.views import MemoryJobViews
from remuda.sim.jobs.wakeups import MemoryWakeups
from remuda.standalone.plane import ControlPlane
from tests.support.forges import SmallForge
from tests.support.jobs import a_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from remuda.dispatch.attempt import Step
    from remuda.model.job import JobState
    from remuda.ports.api_tokens import ApiTokens
    from remuda.ports.forge import Forge
    from remuda.ports.job_views import JobViews
    from remuda.ports.jobs import JobStore
    from remuda.ports.kube import Kube
    from remuda.ports.registrations import Registrations
    from remuda.ports.wakeups import Wakeups
    from remuda.ports.wire import Wire

SPACE = "runners"
SETTINGS = DispatchSettings(namespace=SPACE)


@dataclass(kw_only=True)
class PollPorts:
    """What a server of polls stands on."""

    kube: Kube
    store: JobStore
    views: JobViews
    registrations: Registrations
    wakeups: Wakeups
    tokens: ApiTokens
    forge: Forge


async def _nothing(step: Step) -> None: ...


@dataclass
class PollServer:
    """A server that runs."""

    desk: Desk
    identities: Identities
    registry: CollectorRegistry
    port: int = 0

    def polled(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("remuda_dispatch_polls_total", labels) or 0.0

    @property
    def waiting(self) -> float:
        return self.registry.get_sample_value("remuda_dispatch_polls_waiting") or 0.0


@asynccontextmanager
async def a_poll_server(
    ports: PollPorts,
    settings: DispatchSettings = SETTINGS,
    reached: Callable[[Step], Awaitable[None]] = _nothing,
) -> AsyncIterator[PollServer]:
    """Serve on a port of this machine until the block ends."""
    clock, ids, registry = SystemClock(), SystemIds(), CollectorRegistry()
    metrics = DispatchMetrics(registry)
    view = DispatchView(ports.kube, settings, clock=clock, ids=ids)
    desk = Desk(
        kube=ports.kube,
        store=ports.store,
        views=ports.views,
        view=view,
        stamps=Stamps(ports.kube, settings),
        registrations=ports.registrations,
        wakeups=ports.wakeups,
        forges={Kind.GITHUB: ports.forge},
        settings=settings,
        metrics=metrics,
        clock=clock,
        ids=ids,
        reached=reached,
    )
    identities = Identities(ports.kube, ports.tokens, settings, clock, view=view)
    process = Process(
        doorman=identities, registry=registry, clock=clock, problems=tuple, ready=_ready
    )
    app = build_app([], poll_routes(desk, identities, metrics, settings), process)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(view.run()), group.create_task(desk.run())]
        await view.wait_synced()
        async with serving_http(app, Listen("127.0.0.1", 0), shutdown_s=2) as server:
            port = int(server.address.rpartition(":")[2])
            yield PollServer(desk, identities, registry, port)
        for task in running:
            task.cancel()


async def _ready() -> Ready:
    return Ready(ok=True, says="ok")


@dataclass
class PollWorld:
    """A whole small world in memory, with its server on a real socket."""

    server: PollServer
    tables: Tables
    kube: KubeClient
    forge: SmallForge
    at: list[Callable[[Step], Awaitable[None]]] = field(default_factory=list)
    """What is awaited at each step of each attempt; the last one counts."""

    async def queue(self, *numbers: int) -> None:
        for number in numbers:
            spec = replace(a_job(number), queued_at=SystemClock().now())
            await MemoryJobs(self.tables).enqueue(spec, by="test")

    def state(self, number: int = 1) -> JobState:
        return self.tables.jobs[f"forge/{number}"].state

    async def add_pod(self, name: str = "a") -> str:
        """Make a runner's Pod, and return its token."""
        meta = ObjectMeta(name=name, namespace=SPACE, labels={RUNNER: "true", POOL: "linux"})
        spec = PodSpec(containers=(Container(name="runner", image="i"),), service_account_name=name)
        await self.kube.create(SERVICE_ACCOUNT, ServiceAccount(metadata=meta))
        pod = await self.kube.create(POD, Pod(metadata=meta, spec=spec))
        token = await self.kube.request_token(
            name,
            namespace=SPACE,
            audience=AUDIENCE,
            expiration_s=3600,
            pod=BoundPod(name, pod.uid),
        )
        return token.text

    async def is_stamped(self, name: str = "a") -> bool:
        return OWNER in (await self.kube.get(POD, name, namespace=SPACE)).labels


@asynccontextmanager
async def a_poll_world(
    settings: DispatchSettings = SETTINGS, through: Callable[[Wire], Wire] = lambda wire: wire
) -> AsyncIterator[PollWorld]:
    """``through`` is what the server's own calls to the cluster go through."""
    clock = SystemClock()
    plane = ControlPlane.in_memory(clock, SystemIds())
    kube, tables, forge = KubeClient(plane.wire()), Tables(clock), SmallForge()
    store = MemoryJobs(tables)
    at: list[Callable[[Step], Awaitable[None]]] = []

    async def reached(step: Step) -> None:
        if at:
            await at[-1](step)

    ports = PollPorts(
        kube=KubeClient(through(plane.wire())),
        store=store,
        views=MemoryJobViews(tables),
        registrations=MemoryRegistrations(tables),
        wakeups=MemoryWakeups(tables),
        tokens=MemoryApiTokens(tables),
        forge=forge,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(plane.run())
        await furnish(plane.wire(), kube, SPACE)
        await kube.create(RUNNER_POOL, a_pool("linux", SPACE, labels=("fast",), os="linux"))
        await store.set_limits("acme", Os.LINUX, Size(64, 128 * 1024), by="test")
        async with a_poll_server(ports, settings, reached) as server:
            yield PollWorld(server, tables, kube, forge, at)
        running.cancel()
