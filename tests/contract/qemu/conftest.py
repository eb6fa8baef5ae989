"""A host with QEMU, and images that are built once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.qemu_host import BuiltImages, QemuHost, built_images_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltImages:
    return built_images_or_skip(tmp_path_factory.mktemp("images"))


@pytest.fixture
def host(built: BuiltImages, tmp_path: Path) -> Iterator[QemuHost]:
    made = QemuHost(tmp_path, built.folder, built.image)
    yield made
    made.close()
