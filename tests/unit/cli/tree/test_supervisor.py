"""A start that cannot write what others wait for ends at once, with nothing started."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.tree.folder import Folder, prepare
from remuda.cli.tree.parts import STARTED
from remuda.cli.tree.runs import Run
from remuda.cli.tree.supervisor import Supervisor, lives
from remuda.cli.up import Told, make_plan
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("in_the_way", [".up.json.new", "control-plane/.kubeconfig.new"])
async def test_a_file_that_cannot_be_written_is_said_of_the_folder(
    tmp_path: Path, in_the_way: str
) -> None:
    folder = Folder(tmp_path / "fleet")
    prepare(folder)
    (folder.root / in_the_way / "x").mkdir(parents=True)
    told = Told(driver="process", image="", vms=1, pool=None, qemu_accel=None, ports={})
    plan = make_plan(folder, told, None)
    supervisor = Supervisor(plan, clock=SystemClock(), ids=SystemIds(), say=lambda _: None)

    with pytest.raises(BadInput, match="The data folder"):
        await supervisor.run(asyncio.Event(), lambda: None)

    assert not any(Run(folder, name).is_alive for name in STARTED)


def test_a_part_that_cannot_be_seen_now_has_not_ended(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert not lives(Run(folder, "server"))
    folder.part("server").parent.mkdir(parents=True, exist_ok=True)
    folder.part("server").symlink_to(folder.part("server"))  # a loop: the system refuses to look
    with pytest.raises(OSError, match="symbolic links"):
        assert Run(folder, "server").is_alive
    assert lives(Run(folder, "server"))
