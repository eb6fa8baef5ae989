"""What a guest does with its mailbox, under every shell that it may be run by. The host's side is the agent's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.guest_script import SHELLS, Guest, Shell, a_shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session", params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return a_shell(request.param, tmp_path_factory.mktemp("shell"))


@pytest.fixture
def guest(shell: Shell, tmp_path: Path) -> Iterator[Guest]:
    made = Guest(shell, tmp_path / "guest")
    yield made
    made.close()
