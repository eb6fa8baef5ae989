"""What every request meets, whatever it is for: one form of error, bounds, a log without secrets, and open doors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter
from pydantic import BaseModel
from starlette.routing import Route

from remuda.dispatch.api.app import Process, build_app
from remuda.dispatch.api.edges import BodyBounds
from remuda.dispatch.api.problems import Problem, documented
from remuda.dispatch.api.ready import Ready
from remuda.model.errors import BadInput, RemudaError, Retry
from remuda.ports.database import (
    DatabaseConflict,
    DatabaseRefused,
    DatabaseTimeout,
    DatabaseUnavailable,
)
from remuda.ports.forge import ForgeUnavailable
from remuda.sim.clock import SimClock
from remuda.sim.loop import run
from tests.support.api import an_office, api_story
from tests.support.asgi import Sent, Stream, call

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import Message

    from tests.support.api import Office
    from tests.support.asgi import Answer

CANARY = "canary-4711-secret"


class NoEntry(RemudaError):
    """A fault that only a person can mend."""

    retry = Retry.NEVER


class Body(BaseModel):
    """What a test posts."""

    number: int


FAULTS: dict[str, Exception] = {
    "unavailable": DatabaseUnavailable("No connection", why=f"host {CANARY}", fix="Wait"),
    "timeout": DatabaseTimeout("No answer", why=CANARY, fix="Wait"),
    "conflict": DatabaseConflict("Rolled back", why=CANARY, fix="Again"),
    "refused": DatabaseRefused("No entry", why=CANARY, fix="Change the password"),
    "forge": ForgeUnavailable("No answer", why="it is down", fix="Wait"),
    "never": NoEntry("Refused", why="a rule", fix="Ask"),
    "input": BadInput("That is no name", why="it is empty", fix="Give one"),
    "bug": ValueError(CANARY),
    "assert": AssertionError(CANARY),
    "problem": Problem(418, "A teapot", "it is one", "Drink tea", {"X-Tea": "green"}),
}


def an_app(**changes: Any) -> FastAPI:  # noqa: ANN401 - fields of what it builds
    async def ready() -> Ready:
        return Ready(ok=True, says="ready")

    given: dict[str, Any] = {
        "doorman": None,
        "registry": CollectorRegistry(),
        "clock": SimClock(asyncio.get_running_loop()),
        "problems": tuple,
        "ready": ready,
        "bounds": BodyBounds(bytes_max=1000, arrives_s=5.0),
        **changes,
    }
    router = APIRouter(prefix="/t", tags=["jobs"])

    @router.get("/fault/{name}", responses=documented())
    async def fault(name: str) -> None:
        raise FAULTS[name]

    @router.post("/body", responses=documented(422))
    async def body(body: Body) -> int:
        return body.number

    @router.get("/{rest:path}", responses=documented(404))
    async def swallow(rest: str) -> str:
        return f"swallowed {rest}"

    @router.get("/{rest:path}/inner", responses=documented(404))
    async def inner(rest: str) -> str:
        return f"inner {rest}"

    async def plain(request: Request) -> None:
        raise FAULTS[request.path_params["name"]]

    return build_app([router], [Route("/plain/{name}", plain)], Process(**given))


def ask(
    method: str,
    path: str,
    app: dict[str, Any] | None = None,
    **sent: Any,  # noqa: ANN401 - a request
) -> Answer:
    async def main() -> Answer:
        return await call(an_app(**app or {}), Sent(method, path, **sent))

    answers: list[Answer] = []

    async def keep() -> None:
        answers.append(await main())

    run(keep)
    return answers[0]


def is_problem(answer: Answer, status: int) -> dict[str, Any]:
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert set(body) == {"title", "status", "error", "why", "fix"}
    assert body["status"] == status
    assert all(body[key] for key in body), body
    assert CANARY not in answer.body.decode()
    assert "Traceback" not in answer.body.decode()
    return body


@pytest.mark.parametrize("prefix", ["/t/fault", "/plain"])
@pytest.mark.parametrize(
    ("fault", "status", "retry"),
    [
        ("unavailable", 503, True),
        ("timeout", 503, True),
        ("conflict", 503, True),
        ("refused", 503, True),
        ("forge", 503, True),
        ("never", 500, False),
        ("input", 400, False),
        ("bug", 500, False),
        ("assert", 500, False),
        ("problem", 418, False),
    ],
)
def test_every_fault_of_every_kind_of_route_is_a_problem(
    prefix: str,
    fault: str,
    status: int,
    retry: bool,  # noqa: FBT001 - a row
) -> None:
    answer = ask("GET", f"{prefix}/{fault}")

    is_problem(answer, status)
    assert ("retry-after" in answer.headers) == retry


def test_a_problem_carries_its_headers() -> None:
    assert ask("GET", "/t/fault/problem").headers["x-tea"] == "green"


def test_an_unknown_path_is_a_problem() -> None:
    is_problem(ask("GET", "/nowhere"), 404)


def test_a_wrong_method_is_a_problem_that_says_which_are_right() -> None:
    answer = ask("DELETE", "/healthz")

    is_problem(answer, 405)
    assert answer.headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"{", 400, id="half a document"),
        pytest.param(b"\xff\xfe", 400, id="not even text"),
        pytest.param({"number": CANARY}, 422, id="a wrong type, whose value is not repeated"),
        pytest.param({}, 422, id="a missing field"),
        pytest.param([], 422, id="a list"),
        pytest.param(b"", 422, id="nothing"),
        pytest.param(b"[" * 900, 400, id="a deep document"),
    ],
)
def test_a_body_that_makes_no_sense_is_a_problem(body: object, status: int) -> None:
    is_problem(ask("POST", "/t/body", body=body), status)


def test_a_number_that_is_too_long_to_be_one_is_a_problem() -> None:
    roomy = {"bounds": BodyBounds()}

    is_problem(ask("POST", "/t/body", roomy, body=b'{"number": ' + b"9" * 5000 + b"}"), 400)


def test_a_field_that_is_wrong_is_named() -> None:
    said = is_problem(ask("POST", "/t/body", body={"number": CANARY}), 422)

    assert "body.number" in said["why"]


def test_a_path_that_swallows_is_matched_last() -> None:
    assert ask("GET", "/t/a/b/inner").json() == "inner a/b"
    assert ask("GET", "/t/a/b").json() == "swallowed a/b"


@pytest.mark.parametrize("length", ["1001", "9" * 5000])
def test_a_body_that_is_announced_as_too_large_is_not_read(length: str) -> None:
    answer = ask("POST", "/t/body", body=b"{}", headers={"content-length": length})

    is_problem(answer, 413)


class _Chunks(Stream):
    """A client that sends its body bit by bit."""

    def __init__(self, sent: Sent, *, every_s: float) -> None:
        super().__init__(sent)
        self._every_s = every_s
        self.read = 0

    async def receive(self) -> Message:
        await asyncio.sleep(self._every_s)
        self.read += 100
        return {"type": "http.request", "body": b" " * 100, "more_body": True}


@pytest.mark.parametrize(
    ("every_s", "status"),
    [pytest.param(0.0, 413, id="too large"), pytest.param(2.0, 408, id="too slow")],
)
def test_a_body_without_an_end_is_given_up(every_s: float, status: int) -> None:
    seen: list[tuple[int, int, str]] = []

    async def main() -> None:
        sent = Sent("POST", "/t/body", body=b"")
        stream = _Chunks(sent, every_s=every_s)
        await an_app()(sent.scope(), stream.receive, stream.send)
        seen.append((stream.status, stream.read, stream.headers["connection"]))

    run(main)
    assert seen[0][0] == status
    assert seen[0][1] <= 1100, "no more is read than may be kept"
    assert seen[0][2] == "close"


def test_health_names_the_loops_that_stand_still() -> None:
    assert ask("GET", "/healthz").body == b"ok\n"
    still = {"problems": lambda: ("the desk loop has not run for 60 s",)}
    assert "desk loop" in is_problem(ask("GET", "/healthz", still), 503)["why"]


def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("remuda_test", "A test's", registry=registry).inc()

    assert b"remuda_test_total 1.0" in ask("GET", "/metrics", {"registry": registry}).body


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect"])
def test_no_page_is_served_that_loads_from_elsewhere(path: str) -> None:
    assert ask("GET", path).status == 404


def test_the_log_tells_of_a_request_without_its_query_and_headers() -> None:
    with structlog.testing.capture_logs() as lines:
        ask("GET", "/t/x", query={"token": CANARY}, headers={"authorization": CANARY})
        ask("GET", "/t/line\nbreak")
        ask("GET", "/healthz")
        ask("GET", "/t/fault/bug", query={"token": CANARY})

    said = [line for line in lines if line["event"] == "request"]
    assert [(line["path"], line["status"], line["log_level"]) for line in said] == [
        ("/t/x", 200, "info"),
        ("/t/line?break", 404, "info"),
        ("/healthz", 200, "debug"),
        ("/t/fault/bug", 500, "info"),
    ]
    assert CANARY not in repr(
        [{k: v for k, v in line.items() if k != "exc_info"} for line in lines]
    )
    assert any(line["event"] == "request broke" for line in lines)


# --- Readiness --------------------------------------------------------------------------------------------------------


@api_story
async def test_a_replica_is_ready_once_it_sees_the_fleet_and_its_database(office: Office) -> None:
    assert (await office.call("GET", "/readyz", "")).status == 200


@api_story
async def test_a_replica_that_goes_is_not_ready(office: Office) -> None:
    office.dispatch.closing = True

    assert (await office.call("GET", "/readyz", "")).status == 503


def test_a_replica_that_cannot_see_the_fleet_speaks_of_none() -> None:
    async def main() -> None:
        async with an_office(sees=False) as office:
            for path in ("/readyz", "/api/v1/runners", "/api/v1/pools", "/api/v1/pools/linux"):
                is_problem(await office.call("GET", path), 503)

    run(main)
