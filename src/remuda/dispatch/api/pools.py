"""Pools for people: what they are, what they can do for a job, and which one serves a set of labels. Reads only."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from remuda.dispatch.api.auth import Reader
from remuda.dispatch.api.bodies import ExplanationBody
from remuda.dispatch.api.fleet_bodies import PoolBody, PoolDetail, PoolList, SignalsBody
from remuda.dispatch.api.inputs import PoolName
from remuda.dispatch.api.problems import Problem, documented
from remuda.dispatch.api.ready import must_see
from remuda.dispatch.decide.explain_pool import explain_pool
from remuda.dispatch.decide.explain_runner import explain_labels
from remuda.dispatch.view import DispatchView
from remuda.kube.runner_pool import RunnerPool
from remuda.ports.clock import Clock
from remuda.ports.job_views import JobViews

_Label = Annotated[str, StringConstraints(min_length=1, max_length=300)]
_Labels = Annotated[
    list[_Label],
    Query(alias="label", min_length=1, max_length=32, description="What the job's runs-on says"),
]
_Fork = Annotated[bool, Query(description="Whether it comes from a fork's pull request")]


class PoolRoutes:
    """What the pools are and do."""

    def __init__(self, views: JobViews, view: DispatchView, clock: Clock) -> None:
        self._views = views
        self._view = view
        self._clock = clock

    async def list_pools(self, _: Reader) -> PoolList:
        """Return all pools, by name."""
        must_see(self._view)
        pools = self._view.pools()
        return PoolList(pools=tuple(PoolBody.of(p, self._view.pods_of(p.name)) for p in pools))

    async def get_pool(self, _: Reader, pool: PoolName) -> PoolDetail:
        """Return one pool and the work that waits for it."""
        found = self._found(pool)
        signals = SignalsBody(**asdict(await self._views.signals(pool)))
        return PoolDetail(pool=PoolBody.of(found, self._view.pods_of(pool)), signals=signals)

    async def explain(self, _: Reader, pool: PoolName) -> ExplanationBody:
        """Say what a pool can do for the jobs that wait in it."""
        found = self._found(pool)
        signals = await self._views.signals(pool)
        pods = self._view.pods_of(pool)
        return ExplanationBody.of(pool, explain_pool(found, pods, signals, self._clock.now()))

    async def explain_labels(
        self, _: Reader, labels: _Labels, *, fork: _Fork = False
    ) -> ExplanationBody:
        """Say which pool serves a job with these labels, or exactly why none does."""
        must_see(self._view)
        explanation = explain_labels(labels, self._view.pools(), fork=fork)
        return ExplanationBody.of(", ".join(labels), explanation)

    def _found(self, name: str) -> RunnerPool:
        must_see(self._view)
        pool = self._view.pool(name)
        if pool is None:
            why = "there is no RunnerPool of that name in the namespace of the runners"
            fix = "See the pools with GET /api/v1/pools"
            raise Problem(404, f"There is no pool {name}", why, fix)
        return pool


def pool_router(views: JobViews, view: DispatchView, clock: Clock) -> APIRouter:
    routes = PoolRoutes(views, view, clock)
    router = APIRouter(prefix="/api/v1", tags=["pools"])
    router.add_api_route(
        "/pools", routes.list_pools, summary="List pools", responses=documented(401, 403)
    )
    router.add_api_route(
        "/pools/{pool}",
        routes.get_pool,
        summary="Show a pool",
        responses=documented(401, 403, 404, 422),
    )
    router.add_api_route(
        "/pools/{pool}/explain",
        routes.explain,
        name="explain_pool",
        summary="Say what a pool can do for a job now",
        responses=documented(401, 403, 404, 422),
    )
    router.add_api_route(
        "/explain/labels",
        routes.explain_labels,
        name="explain_labels",
        summary="Say which pool serves a job's labels",
        responses=documented(401, 403, 422),
    )
    return router
