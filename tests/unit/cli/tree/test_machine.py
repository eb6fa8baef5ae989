"""What this machine is found to have: Tart is where the agent will look for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.cli.tree.machine import look_at_machine

if TYPE_CHECKING:
    from pathlib import Path


def test_a_tart_that_a_person_named_is_found_where_the_agent_finds_it(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "my-tart"
    program.parent.mkdir()
    program.touch(mode=0o755)
    nothing = {"PATH": str(tmp_path)}
    for named, found in (("", False), (str(program), True), ("a-tart-that-nobody-has", False)):
        env = nothing | {"REMUDA_TART_PROGRAM": named}
        assert look_at_machine(tmp_path, env=env).has_tart is found
