"""The web application of one replica: every route of its parts, joined."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.routing import BaseRoute

from remuda.dispatch.api.app import Process, build_app
from remuda.dispatch.api.feed import AuditFeed
from remuda.dispatch.api.files import files_router
from remuda.dispatch.api.local import LocalParts, local_router
from remuda.dispatch.api.polls import poll_routes
from remuda.dispatch.api.ready import Readiness
from remuda.dispatch.api.routers import ApiParts, api_routers
from remuda.dispatch.api.webhooks import webhook_routes
from remuda.dispatch.intake import Intake
from remuda.dispatch.process import Dispatch
from remuda.ports.forge import Webhooks


@dataclass(frozen=True, slots=True)
class Front:
    """What faces the network. ``feed.run`` is one more loop of the process."""

    app: FastAPI
    feed: AuditFeed
    _closing: asyncio.Event

    def close(self) -> None:
        """End what would stay open for ever: streams of events and of logs."""
        self._closing.set()
        self.feed.close()


def assemble(
    dispatch: Dispatch,
    webhooks: Webhooks | None = None,
    *,
    obstacle: Callable[[], str] = str,
) -> Front:
    """
    Put the application around a replica. Without ``webhooks`` no forge's messages are taken.

    ``obstacle`` says what keeps the replica from starting; nothing if it has started.
    """
    ports, closing = dispatch.ports, asyncio.Event()
    feed = AuditFeed(ports.views, ports.clock)
    readiness = Readiness(
        ports.views,
        dispatch.view,
        ports.clock,
        closing=lambda: dispatch.closing,
        obstacle=obstacle,
    )
    parts = ApiParts(
        store=ports.store,
        views=ports.views,
        view=dispatch.view,
        kube=ports.kube,
        stops=dispatch.stops,
        feed=feed,
        clock=ports.clock,
    )
    local = LocalParts(
        submissions=dispatch.submissions,
        telemetry=dispatch.telemetry,
        files=dispatch.files,
        local=ports.local_jobs,
        runners=dispatch.identities,
        clock=ports.clock,
        closing=closing,
    )
    process = Process(
        doorman=dispatch.identities,
        registry=dispatch.metrics.registry,
        clock=ports.clock,
        problems=lambda: dispatch.health.problems(ports.clock.monotonic()),
        ready=readiness.check,
    )
    polls = poll_routes(dispatch.desk, dispatch.identities, dispatch.metrics, dispatch.settings)
    routes = [*polls, *_webhook_routes(dispatch, webhooks)]
    routers = [*api_routers(parts), local_router(local), files_router(local)]
    app = build_app(routers, routes, process)
    return Front(app, feed, closing)


def _webhook_routes(dispatch: Dispatch, webhooks: Webhooks | None) -> list[BaseRoute]:
    if webhooks is None or dispatch.inbox is None:
        return []
    intake = Intake(
        webhooks,
        dispatch.ports.deliveries,
        settings=dispatch.settings.intake,
        metrics=dispatch.metrics,
        wake=dispatch.inbox.workers.wake,
    )
    return [*webhook_routes(intake)]
