"""What this machine is found to have: Tart is where the agent will look for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.cli.tree.machine import look_at_machine

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_tart_that_a_person_named_is_found_where_the_agent_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not look_at_machine(tmp_path).has_tart
    program = tmp_path / "my-tart"
    program.touch(mode=0o755)
    monkeypatch.setenv("REMUDA_TART_PROGRAM", str(program))
    assert look_at_machine(tmp_path).has_tart
    monkeypatch.setenv("REMUDA_TART_PROGRAM", "a-tart-that-nobody-has")
    assert not look_at_machine(tmp_path).has_tart
