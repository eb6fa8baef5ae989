"""
The command line of one QEMU guest. Pure.

No path goes into an option that QEMU would split at commas, and nothing that an image says becomes an option. The disk
under an overlay is opened read-only and told to have none below it, whatever its header says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

QMP, CHANNEL, CONSOLE, INCOMING = "@qmp@", "@channel@", "@console@", "@incoming@"
"""Stand for descriptors that the guest's keeper opens."""
_APPEND: Final = "console=ttyS0 quiet panic=-1 random.trust_cpu=on"
_APPEND_TCG: Final = "no_timer_check tsc=reliable cryptomgr.notests mitigations=off nokaslr"
"""Emulated time drifts, and emulated CPUs have no bugs to mitigate. With KVM all of it stays as the kernel has it."""
_SANDBOX: Final = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


class Accel(StrEnum):
    """What runs a guest's code."""

    KVM = "kvm"
    TCG = "tcg"


class Network(StrEnum):
    """What a guest can reach."""

    NONE = "none"
    """It has no network card."""
    RESTRICTED = "restricted"
    """It has a card and an address, and nothing answers."""
    OPEN = "open"
    """All that this host can reach, the services on its loopback among it: no isolation at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One guest, as QEMU is to make it."""

    name: str
    uuid: str
    mac: str
    cpus: int
    memory_mib: int
    kernel: Path
    initrd: Path
    append: str
    base: Path
    """The golden's disk."""
    overlay: Path
    """What the guest writes."""
    accel: Accel
    network: Network
    from_snapshot: bool = False


def arguments(machine: Machine) -> list[str]:
    """Return what follows the program's name."""
    words = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    words += ["-name", machine.name, "-uuid", machine.uuid, "-sandbox", _SANDBOX]
    words += ["-machine", "pc", *_cpu(machine), "-m", str(machine.memory_mib)]
    words += ["-kernel", str(machine.kernel), "-initrd", str(machine.initrd)]
    words += ["-append", _append(machine)]
    words += ["-chardev", f"socket,id=qmp,fd={QMP}", "-mon", "chardev=qmp,mode=control"]
    words += ["-chardev", f"socket,id=console,fd={CONSOLE}", "-serial", "chardev:console"]
    words += ["-device", "virtio-serial-pci,id=ports,max_ports=2"]
    words += ["-chardev", f"socket,id=mailbox,fd={CHANNEL}"]
    words += ["-device", "virtserialport,bus=ports.0,nr=1,chardev=mailbox,name=dev.remuda.mailbox"]
    words += ["-object", "rng-random,id=rng,filename=/dev/urandom"]
    words += ["-device", "virtio-rng-pci,rng=rng", "-device", "vmgenid,guid=auto"]
    words += [*_disk(machine), *_network(machine)]
    return [*words, "-incoming", f"fd:{INCOMING}"] if machine.from_snapshot else words


def _cpu(machine: Machine) -> list[str]:
    kvm = machine.accel is Accel.KVM
    words = ["kvm", "-cpu", "host"] if kvm else ["tcg,tb-size=32", "-cpu", "max"]
    return ["-accel", *words, "-smp", str(machine.cpus)]


def _append(machine: Machine) -> str:
    told = [_APPEND, machine.append]
    if machine.accel is Accel.TCG:
        told.append(_APPEND_TCG)
    return " ".join(word for word in told if word)


def _disk(machine: Machine) -> list[str]:
    base = {
        "driver": "qcow2",
        "read-only": True,
        "file": {"driver": "file", "filename": str(machine.base), "read-only": True},
        "backing": None,
    }
    disk = {
        "driver": "qcow2",
        "node-name": "disk",
        "discard": "unmap",
        # It boots once: nobody needs what it wrote after a power cut.
        "cache": {"direct": False, "no-flush": True},
        "file": {"driver": "file", "filename": str(machine.overlay)},
        "backing": base,
    }
    return ["-blockdev", json.dumps(disk), "-device", "virtio-blk-pci,drive=disk"]


def _network(machine: Machine) -> list[str]:
    if machine.network is Network.NONE:
        return ["-nic", "none"]
    restrict = "on" if machine.network is Network.RESTRICTED else "off"
    card = f"virtio-net-pci,netdev=net,mac={machine.mac},romfile="
    return ["-netdev", f"user,id=net,restrict={restrict},ipv6=off", "-device", card]
