"""The hosts that the suite of the port is tried on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.docker_registry import docker_registry
from tests.support.qemu_host import BuiltImages, built_images_or_skip
from tests.support.tart.driven import PushedImage, pushed_image
from tests.support.vm_hosts import HOSTS, Host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=sorted(HOSTS))
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    driver: str = request.param
    with HOSTS[driver](tmp_path, request.getfixturevalue) as made:
        yield made


@pytest.fixture(scope="session")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushedImage]:
    """Give an image in a real registry, for drivers that pull."""
    with docker_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield pushed_image(tmp_path_factory.mktemp("suite"), registry)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltImages:
    """Give an image in a folder, for drivers that do not pull."""
    return built_images_or_skip(tmp_path_factory.mktemp("images"))
