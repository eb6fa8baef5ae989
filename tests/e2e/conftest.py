"""``remuda control-plane`` in its own process, each kubectl that this machine has, and the real control plane."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.control_plane import CRD_FOLDER
from tests.support.kubectl import Kubectl, found
from tests.support.pasture import pasture
from tests.support.postgres import database_url, postgres_server
from tests.support.real import real_control_plane_or_skip
from tests.support.standalone import StandaloneProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.control_plane import RealControlPlane

__all__ = ["database_url", "pasture", "postgres_server"]

HERE = Path(__file__).parent
LONGEST = (
    "test_agent_kills.py",
    "test_agent_acceptance.py",
    "test_demo.py",
    "test_agent_qemu.py",
    "test_hosts.py",
    "test_agent_hangs.py",
    "test_docs.py",
    "test_server_github.py",
    "test_server_kills.py",
    "test_agent_builder.py",
    "test_up_kills.py",
    "test_up_runs.py",
    "test_agent.py",
    "test_run.py",
    "test_agent_file.py",
)
"""The files that take a minute or more, the longest first. One that is missing here costs time and nothing else."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: one that began last would have a whole machine wait for it alone."""
    if all(item.path.parent == HERE for item in items):
        ranks = {name: rank for rank, name in enumerate(LONGEST)}
        items.sort(key=lambda item: ranks.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="module", params=sorted(found()) or ["none"])
def kubectl(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubectl]:
    """Return kubectl as the administrator of a fresh control plane that knows our kinds."""
    programs = found()
    if not programs:
        missing = "there is no kubectl; run `make control-plane` once, or set KUBEBUILDER_ASSETS"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    plane = StandaloneProcess(tmp_path_factory.mktemp("control-plane"))
    try:
        plane.start()
        run = Kubectl(programs[request.param], plane.kubeconfig)
        run("apply", f"--filename={CRD_FOLDER}")
        run("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
        yield run
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def real_control_plane() -> Iterator[RealControlPlane]:
    """Start a real API server with its controllers, once for all tests of the operator."""
    with real_control_plane_or_skip() as plane:
        yield plane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Start a control plane of ours that knows our kinds, for the tests of a file."""
    programs = found()
    if not programs:
        pytest.skip("no kubectl: run `make control-plane`, or install one")
    control_plane = StandaloneProcess(tmp_path_factory.mktemp("control-plane"))
    try:
        control_plane.start()
        kubectl = Kubectl(next(iter(programs.values())), control_plane.kubeconfig)
        kubectl("apply", f"--filename={CRD_FOLDER}")
        kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
        yield control_plane
    finally:
        control_plane.stop()
