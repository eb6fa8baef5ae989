"""The real control plane for a whole test session, or a skip that says why; in CI never a skip."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.control_plane import NoBinaries, RealControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def real_control_plane_or_skip() -> Iterator[RealControlPlane]:
    try:
        plane = RealControlPlane()
    except NoBinaries as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    with plane:
        yield plane
