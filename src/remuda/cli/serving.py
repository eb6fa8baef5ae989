"""One replica of dispatch as a process: its database, its connections, its HTTP, and how it ends."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from remuda.adapters.garbage import spare_what_stays
from remuda.adapters.github import GithubWebhooks, github_forge
from remuda.adapters.http_server import serving_http
from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.postgres.api_tokens import PostgresApiTokens
from remuda.adapters.postgres.deliveries import PostgresDeliveries
from remuda.adapters.postgres.job_views import PostgresJobViews
from remuda.adapters.postgres.jobs import HAND_OVERS_TOGETHER, PostgresJobs
from remuda.adapters.postgres.local_files import PostgresLocalFiles
from remuda.adapters.postgres.local_jobs import PostgresLocalJobs
from remuda.adapters.postgres.locks import PostgresLocks
from remuda.adapters.postgres.migrate import migrate, pending
from remuda.adapters.postgres.pool import open_database
from remuda.adapters.postgres.registrations import PostgresRegistrations
from remuda.adapters.postgres.source import open_source
from remuda.adapters.postgres.wakeups import PostgresWakeups
from remuda.adapters.system import SystemClock, SystemIds
from remuda.control.preflight import Preflight
from remuda.control.tasks import run_forever
from remuda.dispatch.api.assembly import assemble
from remuda.dispatch.attempt import nothing
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.permissions import rights
from remuda.dispatch.process import Dispatch, Ports
from remuda.dispatch.settings import PollingSettings
from remuda.model.errors import BadInput
from remuda.model.job import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from remuda.adapters.github import GithubForge, GithubSettings
    from remuda.adapters.kube_client import Connection
    from remuda.adapters.postgres.pool import Database
    from remuda.adapters.postgres.source import Source
    from remuda.adapters.status_server import Listen
    from remuda.dispatch.api.assembly import Front
    from remuda.dispatch.attempt import Step
    from remuda.dispatch.settings import DispatchSettings, IntakeSettings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything the command was told, read and checked."""

    connection: Connection
    dispatch: DispatchSettings
    listen: Listen
    data: Path
    """Of the embedded PostgreSQL."""
    env: Mapping[str, str]
    """Where a database server may be named."""
    github: GithubSettings | None = None
    migrate: bool = True
    """Bring the schema up to date at the start; else a schema that is behind is refused."""
    reached: Callable[[Step], Awaitable[None]] = nothing
    """For tests: told at each step of a hand-over."""


async def serve(settings: ServerSettings, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set, then end well: see ``_shut``."""
    clock, ids = SystemClock(), SystemIds()
    metrics = DispatchMetrics(CollectorRegistry())
    ProcessCollector(registry=metrics.registry)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_source(settings.env, settings.data))
        await _schema(source, wanted=settings.migrate)
        database = await stack.enter_async_context(open_database(source.settings))
        wire = HttpWire(settings.connection)
        stack.push_async_callback(wire.close)
        forge: GithubForge | None = None
        if settings.github is not None:
            forge = await stack.enter_async_context(github_forge(settings.github, clock, metrics))
        ports = _ports(settings, KubeClient(wire), database, forge, clock, ids)
        told = replace(settings.dispatch, intake=intake_of(settings))
        dispatch = Dispatch(ports, told, metrics, reached=settings.reached)
        preflight = Preflight(
            ports.kube, rights(settings.dispatch), ids=ids, health=dispatch.health
        )
        github = settings.github
        webhooks = GithubWebhooks(github) if github and github.takes_messages else None
        front = assemble(dispatch, webhooks, obstacle=lambda: str(preflight.obstacle or ""))
        await _run(settings, _Replica(dispatch, front, preflight, source), stop)


def intake_of(settings: ServerSettings) -> IntakeSettings:
    """Say how news come in: by messages, by asking for them, or both."""
    intake, github = settings.dispatch.intake, settings.github
    if github is None:
        return intake
    polling = (intake.polling or PollingSettings()) if github.polls else None
    return replace(intake, messages=github.takes_messages, polling=polling)


@dataclass(frozen=True, slots=True)
class _Replica:
    dispatch: Dispatch
    front: Front
    preflight: Preflight
    source: Source

    async def work(self, ended: asyncio.Event) -> None:
        """Turn every loop until told that it is over."""
        await self.preflight.run()
        await run_forever({**self.dispatch.loops(), "events": self.front.feed.run}, ended)


async def _run(settings: ServerSettings, replica: _Replica, stop: asyncio.Event) -> None:
    ended = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(replica.source.watch(), name="database")
        working = group.create_task(replica.work(ended), name="dispatch")
        async with _listening(settings, replica) as address:
            _tell(settings, replica, address)
            spare_what_stays()
            await stop.wait()
            log.info("stopping", waits_at_most_s=settings.dispatch.shutdown_s)
        # Requests under way are answered. What a hand-over still takes back is the desk's, and ends with its loop.
        ended.set()
        if not replica.preflight.done:
            working.cancel()
        watching.cancel()


def _tell(settings: ServerSettings, replica: _Replica, address: str) -> None:
    log.info(
        "started",
        namespace=settings.dispatch.namespace,
        server=settings.connection.server,
        database="given" if replica.source.embedded is None else "embedded",
        github="none" if settings.github is None else settings.github.api_url,
        intake="none" if settings.github is None else settings.github.intake.value,
        address=address,
    )


@asynccontextmanager
async def _listening(settings: ServerSettings, replica: _Replica) -> AsyncIterator[str]:
    """Serve HTTP; at the end send waiting polls elsewhere and end streams, so that the rest can be waited for."""
    shutdown_s = settings.dispatch.shutdown_s
    async with serving_http(replica.front.app, settings.listen, shutdown_s=shutdown_s) as http:
        yield http.address
        replica.dispatch.close()
        replica.front.close()


async def _schema(source: Source, *, wanted: bool) -> None:
    if wanted:
        for step in await migrate(source.settings):
            log.info("migrated", step=str(step))
        return
    if left := await pending(source.settings):
        raise BadInput(
            "The database's schema is behind",
            why=f"{len(left)} migrations are pending, the first is {left[0]}",
            fix="Run remuda server migrate, or start without --no-migrate",
        )


def _ports(
    settings: ServerSettings,
    kube: KubeClient,
    database: Database,
    forge: GithubForge | None,
    clock: SystemClock,
    ids: SystemIds,
) -> Ports:
    total_max = settings.dispatch.files.total_max_bytes
    return Ports(
        kube=kube,
        store=PostgresJobs(database, clock, most=HAND_OVERS_TOGETHER),
        views=PostgresJobViews(database, clock),
        deliveries=PostgresDeliveries(database, clock),
        registrations=PostgresRegistrations(database, clock),
        local_jobs=PostgresLocalJobs(database),
        local_files=PostgresLocalFiles(database, total_max_bytes=total_max),
        tokens=PostgresApiTokens(database, clock),
        wakeups=PostgresWakeups(database, clock, ids),
        locks=PostgresLocks(database, clock, ids),
        clock=clock,
        ids=ids,
        forges={} if forge is None else {Kind.GITHUB: forge},
        announcer=forge,
    )
