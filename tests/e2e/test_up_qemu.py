"""One command on a machine with QEMU and an image: real guests, and jobs that outlive all of our processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.eventually import eventually
from tests.support.image_parts import built_image_or_skip
from tests.support.trees import Tree, a_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOT_S: Final = 240.0
"""For a machine without acceleration, beside others."""


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


async def _state(tree: Tree, job: str) -> str:
    return str((await tree.api.get(f"/api/v1/jobs/{job}"))["state"])
