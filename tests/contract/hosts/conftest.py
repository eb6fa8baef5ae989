"""One scripted Mac for all that bootstrap it: to lay it out and make it whole takes longer than most tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.scripted_mac import snapshots
from tests.support.scripted_mac.mac import Mac
from tests.support.scripted_mac.place import a_place

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def the_mac(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mac]:
    folder = tmp_path_factory.mktemp("mac")
    with a_place(folder / "root") as place:
        yield Mac(place, folder / "files", snapshots.taken(place))


@pytest.fixture
def mac(the_mac: Mac) -> Mac:
    the_mac.place.forget_seen()
    return the_mac
