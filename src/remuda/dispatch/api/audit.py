"""The audit as a list: who decided what about which job or Pod, and why. Reads only."""

from typing import Annotated

from fastapi import APIRouter, Query

from remuda.dispatch.api.auth import Reader
from remuda.dispatch.api.bodies import AuditBody, AuditPage
from remuda.dispatch.api.inputs import Named, Number, Page
from remuda.dispatch.api.problems import documented
from remuda.ports.job_views import JobViews

_After = Annotated[Number, Query(description="Only entries with a greater number")]


class AuditRoutes:
    """The audit."""

    def __init__(self, views: JobViews) -> None:
        self._views = views

    async def list_audit(
        self, _: Reader, after: _After = 0, job_id: Named = None, limit: Page = 100
    ) -> AuditPage:
        """Return audit entries by number. What is being written now may still appear before the last ones."""
        entries = await self._views.audit(after=after, job_id=job_id, limit=limit + 1)
        page = entries[:limit]
        return AuditPage(
            entries=tuple(AuditBody.of(entry) for entry in page),
            next=page[-1].number if len(entries) > limit else None,
            end=await self._views.audit_end(),
        )


def audit_router(views: JobViews) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["audit"])
    router.add_api_route(
        "/audit",
        AuditRoutes(views).list_audit,
        summary="List audit entries",
        responses=documented(401, 403, 422),
    )
    return router
