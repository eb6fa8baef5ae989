"""
What can run guests on this host: KVM only if it truly does, else QEMU's own emulation.

That ``/dev/kvm`` is there says little: it may hang whoever opens it, or run firmware and then spin for ever. So an
image's own kernel is booted without a disk, in a process of its own with a deadline: that it gets as far as finding
none is the proof.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.adapters.commands import command
from remuda.adapters.qemu.machine import Accel
from remuda.ports.vms import HostUnfit, TimedOut

if TYPE_CHECKING:
    from pathlib import Path

PROBE_S: Final = 20.0
"""With KVM a kernel takes about a second."""
_NO_DISK: Final = b"Kernel panic"


@dataclass(frozen=True, slots=True)
class Hypervisor:
    """QEMU on this host."""

    accel: Accel
    version: str


async def hypervisor(program: str, wanted: str, device: Path, kernel: Path) -> Hypervisor:
    """Find out. ``wanted`` is ``auto``, ``kvm`` or ``tcg``; ``device`` is where KVM would be."""
    said = await command([program, "--version"], op="get", deadline_s=PROBE_S)
    if said.code:
        raise HostUnfit(
            "No VM can run on this host",
            why=f"{program} does not even tell its version: {said.last_words()}",
            fix="Install QEMU for x86-64 guests",
        )
    version = said.out.decode(errors="replace").partition("\n")[0].strip()
    if wanted == "tcg":
        return Hypervisor(Accel.TCG, version)
    if os.access(device, os.R_OK | os.W_OK) and await kernel_runs(
        program, Accel.KVM, kernel, PROBE_S
    ):
        return Hypervisor(Accel.KVM, version)
    if wanted == "kvm":
        raise HostUnfit(
            "No VM can run on this host",
            why=f"KVM was asked for and does not work: {device} is missing, closed to us, or hangs",
            fix="Load the kernel's kvm module and let this user open it, or allow other accelerators",
        )
    return Hypervisor(Accel.TCG, version)


async def kernel_runs(program: str, accel: Accel, kernel: Path, deadline_s: float) -> bool:
    """Say whether a kernel runs with an accelerator: it finds nothing to start, says so, and the machine ends."""
    cpu = "host" if accel is Accel.KVM else "max"
    argv = [program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    argv += ["-machine", "pc", "-accel", accel.value, "-cpu", cpu, "-m", "256", "-nic", "none"]
    argv += ["-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"]
    argv += ["-chardev", "stdio,id=words,signal=off", "-serial", "chardev:words"]
    try:
        said = await command(argv, op="get", deadline_s=deadline_s)
    except TimedOut:
        return False
    return said.code == 0 and _NO_DISK in said.out
