from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.adapters.qemu.accel import hypervisor, kernel_runs
from remuda.adapters.qemu.machine import Accel
from remuda.ports.vms import HostUnfit
from tests.support.image_parts import qemu_or_skip

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.qemu_host import BuiltImages

SLOW_S = 180.0
QEMU = "qemu-system-x86_64"


def a_program(folder: Path, *lines: str) -> str:
    program = folder / "qemu"
    program.write_text(
        "\n".join(["#!/bin/sh", "case $1 in --version) echo QEMU 1; exit ;; esac", *lines, ""])
    )
    program.chmod(0o755)
    return str(program)


async def test_a_kernel_that_speaks_is_the_proof(built: BuiltImages) -> None:
    kernel = built.folder / built.image.partition("@")[0] / "kernel"
    assert await kernel_runs(QEMU, Accel.TCG, kernel, SLOW_S)


async def test_without_the_device_it_is_emulation(tmp_path: Path) -> None:
    qemu_or_skip()
    found = await hypervisor(QEMU, "auto", tmp_path / "kvm", tmp_path)
    assert found.accel is Accel.TCG
    assert "version" in found.version


async def test_a_device_that_hangs_is_as_good_as_none(tmp_path: Path) -> None:
    program = a_program(tmp_path, "exec sleep 600")
    assert not await kernel_runs(program, Accel.KVM, tmp_path, 0.5)


async def test_a_device_that_opens_and_runs_nothing_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "kvm").touch()
    silent = a_program(tmp_path, "exit 0")
    assert (await hypervisor(silent, "auto", tmp_path / "kvm", tmp_path)).accel is Accel.TCG
    speaking = a_program(tmp_path, "echo SeaBIOS")
    assert (await hypervisor(speaking, "auto", tmp_path / "kvm", tmp_path)).accel is Accel.TCG
    speaking = a_program(tmp_path, "echo Kernel panic: no disk")
    assert (await hypervisor(speaking, "auto", tmp_path / "kvm", tmp_path)).accel is Accel.KVM


async def test_kvm_that_is_demanded_and_missing_makes_the_host_unfit(tmp_path: Path) -> None:
    with pytest.raises(HostUnfit, match="KVM was asked for"):
        await hypervisor(a_program(tmp_path), "kvm", tmp_path / "kvm", tmp_path)


async def test_a_host_without_qemu_is_unfit(tmp_path: Path) -> None:
    with pytest.raises(HostUnfit):
        await hypervisor(str(tmp_path / "none"), "auto", tmp_path / "kvm", tmp_path)
