"""A real API server as the judge of the Pods that we make: nothing of ours admits or drains them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.support.backends import RealBackend
from tests.support.raw import Raw

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.control_plane import RealControlPlane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real(real_control_plane: RealControlPlane) -> AsyncIterator[Raw]:
    wire = RealBackend(real_control_plane).wire()
    yield Raw(wire)
    await wire.close()
