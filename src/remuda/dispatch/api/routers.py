"""All routes of people, of the operator and of the autoscaler, from the parts of one process."""

from dataclasses import dataclass

from fastapi import APIRouter

from remuda.dispatch.api.audit import audit_router
from remuda.dispatch.api.events import event_router
from remuda.dispatch.api.feed import AuditFeed
from remuda.dispatch.api.hosts import host_router
from remuda.dispatch.api.jobs import job_router
from remuda.dispatch.api.limits import limit_router
from remuda.dispatch.api.pools import pool_router
from remuda.dispatch.api.runners import runner_router
from remuda.dispatch.api.signals import signal_router
from remuda.dispatch.api.stopped import TakesStops, stopped_router
from remuda.dispatch.view import DispatchView
from remuda.ports.clock import Clock
from remuda.ports.job_views import JobViews
from remuda.ports.jobs import JobStore
from remuda.ports.kube import Kube


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiParts:
    """What the routes read and call."""

    store: JobStore
    views: JobViews
    view: DispatchView
    kube: Kube
    stops: TakesStops
    feed: AuditFeed
    clock: Clock


def api_routers(parts: ApiParts) -> tuple[APIRouter, ...]:
    """Return the routers for ``build_app``. ``parts.feed.run`` must be one of the process's loops."""
    return (
        job_router(parts.views, parts.view, parts.clock),
        runner_router(parts.views, parts.view),
        pool_router(parts.views, parts.view, parts.clock),
        host_router(parts.kube, parts.view, parts.clock),
        limit_router(parts.views, parts.store),
        audit_router(parts.views),
        event_router(parts.feed),
        signal_router(parts.views),
        stopped_router(parts.stops),
    )
