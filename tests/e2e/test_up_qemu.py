"""One command on a machine with QEMU and an image: real guests, and jobs that outlive all of our processes."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Final

import pytest

from remuda.cli.tree.furnish import administrator
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.mailbox import ENDED, EXIT
from tests.support.agents import processes_below
from tests.support.eventually import eventually
from tests.support.image_parts import built_image_or_skip
from tests.support.trees import Tree, a_tree

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

BOOT_S: Final = 240.0
"""For a machine without acceleration, beside others."""
START_TIMEOUT_S: Final = 90
"""When the pool gives a guest up that does not boot: a few emulated ones hang, and the next must come within BOOT_S."""
PACKED_MIB: Final = 40


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    with a_tree("--driver=auto", "--qemu-accel=tcg", "--vms=1") as made:
        built_image_or_skip(made.folder.images, "small")
        yield made


async def test_qemu_is_chosen_where_it_has_an_image_and_a_job_outlives_a_kill(tree: Tree) -> None:
    said = tree.up()
    assert "qemu: QEMU is installed, and there is an image" in said
    assert "WITHOUT ISOLATION" not in said
    assert tree.status()["isolated"] is True
    patch = MergePatch({"spec": {"provisioning": {"startTimeoutSeconds": START_TIMEOUT_S}}})
    async with administrator(tree.folder) as kube:
        await kube.patch(RUNNER_POOL, "default", patch, namespace="default")

    answer = await asyncio.to_thread(
        tree.remuda, "run", "--quiet", "--", "sh", "-c", "uname; exit 7", timeout_s=BOOT_S
    )
    assert answer.code == 7, f"{answer.said}\n{tree.logs()}"
    assert answer.said == "Linux\n"

    job = await tree.post("echo begun; sleep 15; echo done; exit 3")
    await eventually(lambda: _state(tree, job), lambda state: state == "running", within_s=BOOT_S)
    assert len(tree.strike(vms=False)) == 1
    assert "qemu: as at the last start" in Tree(tree.data).up()
    over = await tree.until_job(job)
    assert over["conclusion"] == "failure"
    assert await tree.exit_code(over["pod"]) == 3
    assert await tree.api.text(f"/api/v1/jobs/{job}/logs") == "begun\ndone\n"

    assert "It is down." in tree.down()
    await tree.until_gone()


async def test_a_guest_that_is_killed_while_it_packs_files_has_said_how_its_job_ended(
    tree: Tree, tmp_path: Path
) -> None:
    if not tree.status()["ok"]:
        tree.up()
    # Nothing makes that smaller, and all of it goes through a serial line: it takes a while to pack. Not every
    # program of busybox knows what 40M is.
    script = f"dd if=/dev/urandom of=big bs=1048576 count={PACKED_MIB} 2>/dev/null || exit 1; echo done; exit 7"
    asked = f"--download=big:{tmp_path}"
    process = tree.begin("run", asked, "--", "sh", "-c", script)
    try:
        found = await eventually(
            lambda: _packing(tree, process), lambda seen: seen is not False, within_s=BOOT_S
        )
        assert found is not None, f"nobody saw it pack: {process.communicate()[0]}\n{tree.logs()}"
        for pid in _machines(tree):
            os.kill(pid, signal.SIGKILL)
        said, _ = await asyncio.to_thread(process.communicate, timeout=BOOT_S)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == 7, f"{said}\n{tree.logs()}"
    assert "done\n" in said
    assert "no files came back: its runner ended while it packed them" in said
    assert not (tmp_path / "big").exists()
    assert "It is down." in tree.down()
    await tree.until_gone()


async def _packing(tree: Tree, run: subprocess.Popen[str]) -> bool | None:
    """Say whether a guest has told how its job ended, and not yet what became of its files; None if all is over."""
    boxes = {mark.parent for mark in tree.folder.agent.glob(f"qemu/mailboxes/*/{ENDED}")}
    if any(not (box / EXIT).exists() for box in boxes):
        return True
    return False if run.poll() is None else None


def _machines(tree: Tree) -> list[int]:
    running = processes_below(tree.folder.agent)
    found = [pid for pid, words in running.items() if "qemu-system" in words.split(" ", 1)[0]]
    assert found, running
    return found


async def _state(tree: Tree, job: str) -> str:
    return str((await tree.api.get(f"/api/v1/jobs/{job}"))["state"])
