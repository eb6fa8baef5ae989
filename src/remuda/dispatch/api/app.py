"""
The one web application of dispatch: joins the routes of its parts, and gives them one form of error, log and document.

It serves nothing that a browser would load from elsewhere. Routes are matched in order, so those that end with a whole
path (``/jobs/{job_id:path}``) come last: they would swallow ``/jobs/{job_id:path}/explain``.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from remuda.dispatch.api.auth import Doorman, KnownFirst
from remuda.dispatch.api.described import PLAIN_OPERATIONS
from remuda.dispatch.api.edges import AccessLog, BodyBounds, BoundedBodies, Direct
from remuda.dispatch.api.problems import (
    LastResort,
    Problem,
    ProblemBody,
    documented,
    handle_problems,
)
from remuda.dispatch.api.ready import Ready
from remuda.ports.clock import Clock

_TITLE: Final = "Remuda dispatch"
_SAYS: Final = (
    "Jobs, runners and pools of a fleet, and why each is where it is. Every error is application/problem+json with what"
    " happened (`error`), why (`why`) and what to do (`fix`). Times are ISO 8601 in UTC."
)
TAGS: Final = (
    {"name": "jobs", "description": "Jobs, and why they wait."},
    {"name": "runners", "description": "Runners, and the jobs that they hold."},
    {"name": "pools", "description": "Pools and their work."},
    {"name": "hosts", "description": "Machines that runners are placed on."},
    {"name": "limits", "description": "What each tenant may use at once."},
    {"name": "audit", "description": "Who decided what, and why: as a list and as a stream."},
    {"name": "machines", "description": "What runners, the operator and forges call."},
    {"name": "process", "description": "How this server does. Open to everybody who can reach it."},
)
_WENT_WELL: Final = "Successful Response"
_SERVED_TEXT = {"text/plain": {"schema": {"type": "string"}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What the app needs of the process that it runs in."""

    doorman: Doorman
    registry: CollectorRegistry
    clock: Clock
    problems: Callable[[], tuple[str, ...]]
    """What ``/healthz`` tells: the loops that stand still."""
    ready: Callable[[], Awaitable[Ready]]
    bounds: BodyBounds = field(default_factory=BodyBounds)


class DispatchApp(FastAPI):
    """
    The application with a document that holds its plain routes and our form of error.

    What runners and forges call the whole day goes past FastAPI, which would be a sixth of a hand-over, and through the
    rest of what every request passes.
    """

    def __init__(self, direct: Mapping[str, ASGIApp], **options: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(**options)
        self._direct = direct
        """By path, for POST."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            serve = self._direct.get(scope["path"])
            if serve is not None:
                await serve(scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = _document(self)
        return self.openapi_schema


def build_app(
    routers: Iterable[APIRouter], routes: Iterable[BaseRoute], process: Process
) -> FastAPI:
    """Join everything. ``routes`` are plain ones; those that ``described`` knows get into the document too."""
    joined = [route for router in (_process_router(process), *routers) for route in router.routes]
    taking = [route for route in joined if isinstance(route, APIRoute) and _takes_body(route)]
    plain = list(routes)
    app = DispatchApp(
        {path: Direct(serve, process.bounds, process.clock) for path, serve in _direct(plain)},
        title=_TITLE,
        version="v1",
        description=_SAYS,
        openapi_tags=[dict(tag) for tag in TAGS],
        docs_url=None,
        redoc_url=None,
        middleware=[
            Middleware(AccessLog, clock=process.clock),
            Middleware(LastResort),
            Middleware(BoundedBodies, bounds=process.bounds),
            Middleware(KnownFirst, doorman=process.doorman, taking=taking),
        ],
        redirect_slashes=False,
    )
    app.state.doorman = process.doorman
    handle_problems(app)
    for route in joined:
        if isinstance(route, APIRoute):
            route.operation_id = route.operation_id or route.name
    app.router.routes.extend(sorted([*joined, *plain], key=_swallows))
    return app


def _direct(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, ASGIApp]]:
    """Return the plain routes that are one path and POST."""
    for route in routes:
        if isinstance(route, Route) and route.methods == {"POST"} and "{" not in route.path:
            yield route.path, route.app


def _takes_body(route: APIRoute) -> bool:
    return route.body_field is not None and route.path.startswith("/api/v1/")


def _swallows(route: BaseRoute) -> bool:
    return isinstance(route, Route) and route.path.endswith(":path}")


def _process_router(process: Process) -> APIRouter:
    router = APIRouter(tags=["process"])
    text: dict[int | str, dict[str, Any]] = {
        200: {"description": "It does well", "content": _SERVED_TEXT}
    }

    async def metrics() -> Response:
        return Response(generate_latest(process.registry), media_type=CONTENT_TYPE_LATEST)

    async def healthz() -> Response:
        if problems := process.problems():
            why, fix = "; ".join(problems), "Restart this process if it does not recover"
            raise Problem(503, "This server is not well", why, fix)
        return PlainTextResponse("ok\n")

    async def readyz() -> Response:
        ready = await process.ready()
        if not ready.ok:
            fix = "Ask another replica, or wait; the server's log says more"
            raise Problem(503, "This server is not ready", ready.says, fix)
        return PlainTextResponse(f"{ready.says}\n")

    for path, serve, summary in (
        ("/healthz", healthz, "Tell whether this server's loops turn"),
        ("/readyz", readyz, "Tell whether this server can serve now"),
        ("/metrics", metrics, "Give Prometheus its metrics"),
    ):
        router.add_api_route(
            path,
            serve,
            summary=summary,
            response_class=PlainTextResponse,
            responses={**text, **documented()},
        )
    return router


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=[route for route in app.routes if isinstance(route, APIRoute)],
        tags=app.openapi_tags,
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["ProblemBody"] = ProblemBody.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    _describe_plain(app, document)
    _name_answers(document)
    return document


def _name_answers(document: dict[str, Any]) -> None:
    """Say of each answer what it is: FastAPI's own word says only that it went well."""
    schemas = document["components"]["schemas"]
    for operations in document["paths"].values():
        for operation in operations.values():
            for answer in operation["responses"].values():
                if answer["description"] == _WENT_WELL:
                    body = answer.get("content", {}).get("application/json", {}).get("schema", {})
                    schema = schemas.get(body.get("$ref", "").rsplit("/", 1)[-1], {})
                    answer["description"] = schema.get("description", "Done").rstrip(".")


def _describe_plain(app: FastAPI, document: dict[str, Any]) -> None:
    """Add the operations of routes that FastAPI does not read."""
    plain = {r.path for r in app.routes if isinstance(r, Route) and not isinstance(r, APIRoute)}
    for path, operations in PLAIN_OPERATIONS.items():
        if path in plain:
            document["paths"].setdefault(path, {}).update(operations)
    document["paths"] = dict(sorted(document["paths"].items()))
