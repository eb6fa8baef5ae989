"""What each tenant may use at once, and who may change that."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from remuda.dispatch.api.auth import Operator, Reader
from remuda.dispatch.api.bodies import LimitBody, LimitList
from remuda.dispatch.api.inputs import Named, Text
from remuda.dispatch.api.problems import documented
from remuda.model.job import Os, Size
from remuda.ports.job_views import JobViews
from remuda.ports.jobs import JobStore

_VCPUS_MAX = 1_000_000
_MEMORY_MAX_MIB = 1_000_000_000


class NewLimit(BaseModel):
    """A limit to set. 0 lets the tenant start nothing more; what runs goes on."""

    model_config = ConfigDict(extra="forbid")

    tenant: Text
    os: Os
    vcpus: Annotated[int, Field(strict=True, ge=0, le=_VCPUS_MAX)]
    memory_mib: Annotated[int, Field(strict=True, ge=0, le=_MEMORY_MAX_MIB)]


class LimitRoutes:
    """Limits."""

    def __init__(self, views: JobViews, store: JobStore) -> None:
        self._views = views
        self._store = store

    async def list_limits(self, _: Reader, tenant: Named = None) -> LimitList:
        """Return the limits and what is in use of them."""
        standings = await self._views.standings(tenant)
        return LimitList(limits=tuple(LimitBody.of(standing) for standing in standings))

    async def set_limit(self, who: Operator, limit: NewLimit) -> LimitBody:
        """Set a tenant's limit on one OS. One below what is in use ends nothing: no new job fits until room is free."""
        size = Size(limit.vcpus, limit.memory_mib)
        await self._store.set_limits(limit.tenant, limit.os, size, by=who.in_audit)
        standings = await self._views.standings(limit.tenant)
        return next(LimitBody.of(s) for s in standings if s.os is limit.os)


def limit_router(views: JobViews, store: JobStore) -> APIRouter:
    routes = LimitRoutes(views, store)
    router = APIRouter(prefix="/api/v1", tags=["limits"])
    router.add_api_route(
        "/limits", routes.list_limits, summary="List limits", responses=documented(401, 403, 422)
    )
    router.add_api_route(
        "/limits",
        routes.set_limit,
        methods=["POST"],
        summary="Set a limit",
        responses=documented(400, 401, 403, 408, 413, 422),
    )
    return router
