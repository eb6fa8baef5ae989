"""How much work a pool has, for the autoscaler."""

from dataclasses import asdict

from fastapi import APIRouter

from remuda.dispatch.api.auth import Caller
from remuda.dispatch.api.fleet_bodies import SignalsBody
from remuda.dispatch.api.inputs import PoolName
from remuda.dispatch.api.problems import documented
from remuda.ports.job_views import JobViews

_AGE_MAX_S = 366 * 86_400.0
"""The operator takes a greater age for a fault of ours."""


class SignalRoutes:
    """Signals. A pool that nobody knows has no work: the operator may ask before this replica has seen it."""

    def __init__(self, views: JobViews) -> None:
        self._views = views

    async def get_signals(self, _: Caller, pool: PoolName) -> SignalsBody:
        """Return how much work there is for a pool: a tenant's room is counted once over all pools."""
        signals = asdict(await self._views.signals(pool))
        signals["oldest_queued_s"] = min(signals["oldest_queued_s"], _AGE_MAX_S)
        return SignalsBody(**signals)


def signal_router(views: JobViews) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["machines"])
    router.add_api_route(
        "/pools/{pool}/signals",
        SignalRoutes(views).get_signals,
        summary="Give the autoscaler a pool's work",
        responses=documented(401, 403, 404, 422),
    )
    return router
