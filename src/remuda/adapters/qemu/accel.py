"""
What can run guests on this host: KVM only if it truly does, else QEMU's own emulation.

That ``/dev/kvm`` is there says little: it may hang whoever opens it, or refuse to run code. So a machine is started
that holds nothing but its firmware, in a process of its own with a deadline, and its firmware's first words are the
proof.
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

PROBE_S: Final = 10.0
_FIRMWARE: Final = b"SeaBIOS"


@dataclass(frozen=True, slots=True)
class Hypervisor:
    """QEMU on this host."""

    accel: Accel
    version: str


async def hypervisor(program: str, wanted: str, device: Path, deadline_s: float) -> Hypervisor:
    """Find out. ``wanted`` is ``auto``, ``kvm`` or ``tcg``; ``device`` is where KVM would be."""
    said = await command([program, "--version"], op="get", deadline_s=deadline_s)
    if said.code:
        raise HostUnfit(
            "No VM can run on this host",
            why=f"{program} does not even tell its version: {said.last_words()}",
            fix="Install QEMU for x86-64 guests",
        )
    version = said.out.decode(errors="replace").partition("\n")[0].strip()
    if wanted == "tcg":
        return Hypervisor(Accel.TCG, version)
    if os.access(device, os.R_OK | os.W_OK) and await firmware_runs(program, Accel.KVM, PROBE_S):
        return Hypervisor(Accel.KVM, version)
    if wanted == "kvm":
        raise HostUnfit(
            "No VM can run on this host",
            why=f"KVM was asked for and does not work: {device} is missing, closed to us, or hangs",
            fix="Load the kernel's kvm module and let this user open it, or allow other accelerators",
        )
    return Hypervisor(Accel.TCG, version)


async def firmware_runs(program: str, accel: Accel, deadline_s: float) -> bool:
    """Say whether code runs with an accelerator: the firmware speaks, finds nothing to boot, and the machine ends."""
    cpu = "host" if accel is Accel.KVM else "max"
    argv = [program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    argv += ["-machine", "pc", "-accel", accel.value, "-cpu", cpu, "-m", "32", "-nic", "none"]
    argv += ["-boot", "reboot-timeout=1", "-chardev", "stdio,id=words,signal=off"]
    argv += ["-device", "isa-debugcon,iobase=0x402,chardev=words"]
    try:
        said = await command(argv, op="get", deadline_s=deadline_s)
    except TimedOut:
        return False
    return said.code == 0 and _FIRMWARE in said.out
