"""A GitHub of our own, with GitHub's OpenAPI watching each request and each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from remuda.adapters.github import github_forge
from remuda.dispatch.metrics import DispatchMetrics
from tests.support.github_references import Judge, references
from tests.support.github_server import GithubServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remuda.adapters.github import GithubForge


@pytest.fixture(scope="session")
def github_references() -> Path:
    return references()


@pytest.fixture(scope="session")
def github_openapi(github_references: Path) -> Judge:
    """Read the document once: it is large."""
    return Judge.of(github_references, "api.github.com")


@pytest.fixture
async def github(github_openapi: Judge) -> AsyncIterator[GithubServer]:
    """Serve, and demand that every request and every answer is as GitHub describes them."""
    github_openapi.faults.clear()
    server = GithubServer()
    server.watch = github_openapi.watch
    async with server.running():
        yield server
    assert github_openapi.faults == []


@pytest.fixture
def metrics() -> DispatchMetrics:
    return DispatchMetrics(CollectorRegistry())


@pytest.fixture
async def forge(github: GithubServer, metrics: DispatchMetrics) -> AsyncIterator[GithubForge]:
    async with github_forge(github.settings(), github.clock, metrics) as forge:
        yield forge
