"""What all contract suites share: the real control plane, one per run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.control_plane import NoBinaries, RealControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def real_control_plane() -> Iterator[RealControlPlane]:
    """Start the judge. Without its binaries the tests that need it are skipped, but in CI they fail."""
    try:
        plane = RealControlPlane()
    except NoBinaries as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    with plane:
        yield plane
