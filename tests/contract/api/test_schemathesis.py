"""The whole API against its own description: no server error, no status and no body that is not described."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from remuda.adapters.http_server import serving_http
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock
from remuda.dispatch.api.document import document
from remuda.dispatch.api.feed import FeedSettings
from tests.support.api import a_condition, an_office

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis import Case

    from tests.support.api import Office

EXAMPLES = 25
"""For each operation and each kind of data, with the same seed every time."""
DOCUMENT = document()
POSITIVE, NEGATIVE = schemathesis.GenerationMode
NAMES = {"pool": "linux", "pod": "p1", "job_id": "forge/1"}
"""What is there, so that not every call ends with 404."""


def _attempts() -> Iterator[Any]:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            label = f"{method.upper()} {path}"
            names = {name: known for name, known in NAMES.items() if f"{{{name}}}" in path}
            yield pytest.param(path, method, POSITIVE, {}, id=label)
            if names:
                yield pytest.param(path, method, POSITIVE, names, id=f"{label}, of what is there")
            if "requestBody" in operation or operation.get("parameters"):
                yield pytest.param(path, method, NEGATIVE, {}, id=f"{label}, of rubbish")


CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SHORT_LIVED = FeedSettings(lasts_s=0.05, poll_s=0.02)


async def _furnish(office: Office) -> None:
    """Make a world in which most calls find something."""
    await office.add_pool("linux")
    await office.limit()
    pod = await office.add_pod("p1")
    await office.add_pod("p2")
    await office.add_node("mini-1")
    await office.queue(1, 2, 3)
    await office.run_on("p2")
    await office.pool_says("linux", conditions=[a_condition("Ready", message="fine")])
    await office.account("p1", pod=pod)


class _Server:
    """The application on a real socket and its own loop, as a process would serve it."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: dict[str, str] = {}
        self._up = threading.Event()
        self._over: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with (
            an_office(SystemClock(), SHORT_LIVED) as office,
            serving_http(office.app, Listen(port=0), shutdown_s=1.0) as server,
        ):
            desk = office.group.create_task(office.dispatch.desk.run(), name="desk")
            await _furnish(office)
            self.url, self.keys = server.address, office.keys
            self._up.set()
            await self._over.wait()
            desk.cancel()

    @contextmanager
    def running(self) -> Iterator[_Server]:
        self._thread.start()
        assert self._up.wait(60), "the server did not come up"
        try:
            yield self
        finally:
            assert self._loop is not None
            assert self._over is not None
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(30)


@pytest.fixture(scope="module")
def server() -> Iterator[_Server]:
    with _Server().running() as server:
        yield server


def _token(server: _Server, path: str, method: str) -> str:
    if path.endswith("/stopped"):
        return server.keys["remuda-controller"]
    if path.endswith(("/telemetry", "/dispatch")):
        return server.keys["p1"]
    return server.keys["operate" if method == "post" else "read"]


@pytest.mark.parametrize(("path", "method", "mode", "names"), [*_attempts()])
def test_every_answer_is_as_described(
    server: _Server,
    path: str,
    method: str,
    mode: schemathesis.GenerationMode,
    names: dict[str, str],
) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.config.update(base_url=server.url)
    operation = schema[path][method.upper()]
    headers = {"Authorization": f"Bearer {_token(server, path, method)}"}
    answered = 0

    @given(case=operation.as_strategy(generation_mode=mode, path_parameters=names or None))
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def attempt(case: Case[Any]) -> None:
        nonlocal answered
        case.call_and_validate(headers=headers, checks=CHECKS, timeout=30)
        answered += 1

    attempt()
    assert answered
