"""What all contract suites share: the real control plane, one per run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.real import real_control_plane_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.control_plane import RealControlPlane


@pytest.fixture(scope="session")
def real_control_plane() -> Iterator[RealControlPlane]:
    """Start the judge. Without its binaries the tests that need it are skipped, but in CI they fail."""
    with real_control_plane_or_skip() as plane:
        yield plane
