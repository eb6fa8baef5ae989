"""The operator's report that a runner stopped. May be repeated; a later report can only shorten."""

from datetime import datetime
from typing import Annotated, Protocol

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from remuda.dispatch.api.auth import Controller
from remuda.dispatch.api.inputs import Moment, PodName
from remuda.dispatch.api.problems import documented

_CODE_MAX = 2**31 - 1
_REASON_MAX_CHARS = 1000


class TakesStops(Protocol):
    """What becomes of a runner's end. Filled by ``remuda.dispatch.stops``."""

    async def stopped(
        self, pod: str, *, ended_at: datetime, exit_code: int | None, reason: str
    ) -> object: ...


class StoppedBody(BaseModel):
    """The end of a runner, as far as its Pod told. Fields that are not known here are left alone."""

    ended_at: Moment = Field(description="When it ended, with a time zone; from 1970 to 2200")
    exit_code: Annotated[int, Field(strict=True, ge=-_CODE_MAX, le=_CODE_MAX)] | None = None
    reason: Annotated[str, Field(max_length=_REASON_MAX_CHARS)] = ""


class StoppedRoutes:
    """Reports of the operator."""

    def __init__(self, stops: TakesStops) -> None:
        self._stops = stops

    async def runner_stopped(self, _: Controller, pod: PodName, report: StoppedBody) -> Response:
        """Take the report that a runner stopped: its session ends, its claim is over, its job is looked after."""
        reason = "".join(c if c.isprintable() else " " for c in report.reason)
        await self._stops.stopped(
            pod, ended_at=report.ended_at, exit_code=report.exit_code, reason=reason
        )
        return Response(status_code=204)


def stopped_router(stops: TakesStops) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["machines"])
    router.add_api_route(
        "/runners/{pod}/stopped",
        StoppedRoutes(stops).runner_stopped,
        methods=["POST"],
        status_code=204,
        response_class=Response,
        summary="Report that a runner stopped",
        responses=documented(400, 401, 403, 404, 408, 413, 422),
    )
    return router
