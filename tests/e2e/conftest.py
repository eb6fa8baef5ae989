"""``remuda control-plane`` in its own process, each kubectl that this machine has, and the real control plane."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.control_plane import CRD_FOLDER
from tests.support.kubectl import Kubectl, found
from tests.support.real import real_control_plane_or_skip
from tests.support.standalone import StandaloneProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.control_plane import RealControlPlane


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
