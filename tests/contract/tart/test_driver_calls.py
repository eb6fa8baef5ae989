"""How often the driver calls tart: what it knows, or can read from Tart's own folder, it asks nobody for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from remuda.ports.vms import Power, Refused, SeenVm, VmShape, vm_name
from tests.support.tart.driven import GUEST, DrivenTart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A, B, C = (vm_name(uid) for uid in ("uid-a", "uid-b", "uid-c"))
LARGE = VmShape(cpus=6, memory_mib=8192)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DrivenTart]:
    made = DrivenTart(tmp_path / "driven")
    made.tart.make("golden", GUEST)
    yield made
    made.close()


def calls(host: DrivenTart, name: str) -> list[str]:
    """Return the verbs that were called for a VM."""
    notes = host.tart.desk.journal()
    return [n["verb"] for n in notes if n["event"] == "begin" and n["vm"] == name]


def size(host: DrivenTart, name: str) -> tuple[int, int]:
    config: dict[str, Any] = host.tart.vm(name).config()
    return config["cpuCount"], config["memorySize"] // 1024**2


async def test_a_clone_like_the_one_before_takes_two_calls(host: DrivenTart) -> None:
    for name in (A, B):
        await host.vms.clone("golden", name)
        await host.vms.shape(name, LARGE)
    assert (calls(host, A), calls(host, B)) == (["clone", "set", "set"], ["clone", "set"])
    assert size(host, A) == size(host, B) == (6, 8192)
    assert host.tart.vm(A).config()["ecid"] != host.tart.vm(B).config()["ecid"]


async def test_a_clone_unlike_the_one_before_has_the_size_that_it_is_given(
    host: DrivenTart,
) -> None:
    for name, shape in ((A, LARGE), (B, VmShape(cpus=2)), (C, VmShape())):
        await host.vms.clone("golden", name)
        await host.vms.shape(name, shape)
    assert size(host, B) == (2, 4096), "what is not asked for is as the image says"
    assert size(host, C) == (4, 4096)


async def test_a_size_that_was_refused_is_not_tried_on_the_next_clone(host: DrivenTart) -> None:
    await host.vms.clone("golden", A)
    with pytest.raises(Refused):
        await host.vms.shape(A, VmShape(memory_mib=1))
    await host.vms.clone("golden", B)
    assert size(host, B) == (4, 4096)


async def test_what_is_not_there_takes_no_call(host: DrivenTart) -> None:
    assert await host.vms.observe(A) is None
    assert calls(host, A) == []
    assert await host.vms.observe("golden") == SeenVm(name="golden", power=Power.STOPPED)
    assert calls(host, "golden") == ["get"]


async def test_what_runs_is_known_without_a_call_whoever_started_it(host: DrivenTart) -> None:
    assert host.vms.running() == frozenset()
    await host.vms.clone("golden", A)
    host.vms.mailbox(A).mkdir(parents=True)
    await host.vms.run(A)
    before = len(host.tart.desk.journal())
    assert host.restarted().running() == frozenset({A})
    assert len(host.tart.desk.journal()) == before
    await host.vms.stop(A, grace_s=0)
    assert host.vms.running() == frozenset()
