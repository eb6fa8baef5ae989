"""
One suite, three API servers: our store in memory, our store over HTTPS, and the real control plane.

The tests share each server for the whole run, so each gets a namespace of its own.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.support.backends import (
    Backend,
    RealBackend,
    client,
    http_backend,
    memory_backend,
)
from tests.support.eventually import eventually
from tests.support.raw import Raw
from tests.support.space import Space

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from remuda.ports.kube import Kube
    from remuda.ports.wire import Wire

BACKENDS = ("memory", "http", "real")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the suite on one loop: connections and the servers in this process live on it."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and isinstance(item, pytest.Function):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=BACKENDS)
async def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Backend]:
    if request.param == "memory":
        async with memory_backend() as memory:
            yield memory
    elif request.param == "http":
        async with http_backend(tmp_path_factory.mktemp("control-plane")) as http:
            yield http
    else:
        yield RealBackend(request.getfixturevalue("real_control_plane"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def wire(backend: Backend) -> AsyncIterator[Wire]:
    opened = backend.wire()
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def kube(wire: Wire) -> Kube:
    """Return the port under test, as administrator."""
    return client(wire)


@pytest.fixture(scope="session")
def raw(wire: Wire) -> Raw:
    return Raw(wire)


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return count()


@pytest_asyncio.fixture(loop_scope="session")
async def space(raw: Raw, numbers: Iterator[int]) -> Space:
    """Create a fresh namespace, ready for Pods: its default ServiceAccount is there."""
    fresh = Space(f"space-{next(numbers)}")
    (await raw.post("/api/v1/namespaces", {"metadata": {"name": fresh.name}})).ok()
    account = fresh.path("serviceaccounts", "default")
    await eventually(lambda: raw.get(account), lambda answer: answer.status == 200)
    return fresh
