"""What ``tart`` does, as far as we drive it. The stand-in is held to it; a driver is tested through the stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.docker_registry import DockerRegistry, docker_registry
from tests.support.tart.installed import StandIn
from tests.support.tart.qemu_parts import qemu_parts_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def tart(tmp_path: Path) -> Iterator[StandIn]:
    stand_in = StandIn(tmp_path / "tart")
    yield stand_in
    stand_in.close()


@pytest.fixture(scope="session")
def machine_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    qemu_parts_or_skip(folder)
    return folder


@pytest.fixture
def machines(tmp_path: Path, machine_parts: Path) -> Iterator[StandIn]:
    """Install a stand-in whose VMs are real machines."""
    stand_in = StandIn(tmp_path / "tart", backend="qemu")
    for name in ("kernel", "initrd"):
        (stand_in.desk.folder / name).symlink_to(machine_parts / name)
    yield stand_in
    stand_in.close()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running
