from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.troubled_registry import TroubledRegistry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def registry() -> AsyncIterator[TroubledRegistry]:
    async with TroubledRegistry().served() as served:
        yield served
