"""What runs the VMs of this machine, and of which image the default pool is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from remuda.model.errors import BadInput

PROCESS_IMAGE: Final = "process"
VMS_MAX: Final = 4
"""As many runners as are kept warm without being told: more would be a burden on a machine that people work at."""
MAC_VMS: Final = 2
"""As many macOS guests as macOS runs at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was found on this machine."""

    platform: str
    """As Python spells it: ``darwin``, ``linux``."""
    cpus: int
    memory_mib: int
    has_tart: bool = False
    has_qemu: bool = False
    qemu_image: str = ""
    """An image in the images folder that QEMU could boot; empty: none."""
    has_image_folder: bool = False
    """Whether the image that the person named is one that processes can use: a folder in the images folder."""
    has_vm_image: bool = False
    """Whether the image that the person named is one that QEMU could boot. Tart fetches those that it has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The driver, and why it is that one."""

    driver: str
    image: str
    why: str


def choose_driver(told: str, image: str, machine: Machine, *, kept_image: str = "") -> Chosen:
    """
    Choose. ``told`` is auto or a driver; ``image`` is what the person named now, or empty. Raises BadInput.

    An image that was named is used or refused, never left out. ``kept_image`` was taken at an earlier start: it goes
    where none is named, and is not looked at again, as the pool may have another one by now.
    """
    match told:
        case "process":
            if image and not machine.has_image_folder:
                raise _no_folder(image)
            return Chosen(
                driver=told, image=image or kept_image or PROCESS_IMAGE, why="as you said"
            )
        case "tart" | "qemu":
            found = image or kept_image or (machine.qemu_image if told == "qemu" else "")
            if not found:
                raise _no_image(told)
            if not (machine.has_tart if told == "tart" else machine.has_qemu):
                raise _no_driver(told)
            if told == "qemu" and image and not machine.has_vm_image:
                raise _no_vm_image(image)
            return Chosen(driver=told, image=found, why="as you said")
        case _:
            return _by_itself(image, machine)


def _by_itself(image: str, machine: Machine) -> Chosen:
    is_mac = machine.platform == "darwin"
    program, there = ("Tart", machine.has_tart) if is_mac else ("QEMU", machine.has_qemu)
    if image and not there:
        raise _no_program(image, program)
    if is_mac:
        if there and image:
            return Chosen(driver="tart", image=image, why="Tart is installed")
        no_image = "Tart is installed, but no image is named with --image"
    else:
        found = image or machine.qemu_image
        if image and not machine.has_vm_image:
            raise _no_vm_image(image)
        if there and found:
            why = "QEMU is installed, and there is an image"
            return Chosen(driver="qemu", image=found, why=why)
        no_image = "QEMU is installed, but there is no image in images of the data folder"
    lacks = no_image if there else f"{program} is not installed"
    return Chosen(driver="process", image=PROCESS_IMAGE, why=lacks)


def _no_image(driver: str) -> BadInput:
    where = ", or put its folder into images in the data folder" if driver == "qemu" else ""
    return BadInput(
        f"The default pool cannot be made with the driver {driver}",
        why="it is not said which image its runners are of",
        fix=f"Name one with --image{where}, or use --driver process to have a look around",
    )


def _no_driver(driver: str) -> BadInput:
    program = {"tart": "Tart", "qemu": "QEMU"}[driver]
    return BadInput(
        f"The driver {driver} cannot be used",
        why=f"{program} is not installed, or not in PATH",
        fix=f"Install {program}, or use --driver process to have a look around, without isolation",
    )


def _no_vm_image(image: str) -> BadInput:
    return BadInput(
        f"The image {image} cannot be used",
        why="for QEMU an image is a folder in images of the data folder with an image.json in it, and there is none"
        " of that name",
        fix="Build it there, or leave --image out to have one that is there",
    )


def _no_program(image: str, program: str) -> BadInput:
    return BadInput(
        f"The image {image} cannot be used",
        why=f"{program} is not installed, and runners that are plain processes boot no image",
        fix=f"Install {program}; or leave --image out to have a look around, without isolation",
    )


def _no_folder(image: str) -> BadInput:
    return BadInput(
        f"The image {image} cannot be used with the driver process",
        why="for it an image is a folder in images of the data folder, and there is none of that name",
        fix="Make that folder, or leave --image out; for an image of VMs say --driver tart or --driver qemu",
    )


def vms_of(told: int | None, driver: str, machine: Machine) -> int:
    """Return how many VMs run at once."""
    if told is not None:
        return told
    return MAC_VMS if driver == "tart" else min(VMS_MAX, max(2, machine.cpus))


@dataclass(frozen=True, slots=True)
class Size:
    """What something has of the machine."""

    cpus: int
    memory_mib: int


_LEAST_MIB: Final = {"process": 128, "qemu": 512, "tart": 4096}
_KEPT_MIB: Final = 2048


def offer_of(driver: str, vms: int, machine: Machine) -> Size:
    """Return what all runners may have together. Processes are no VMs: they get as much as they are counted for."""
    memory_mib = machine.memory_mib - max(_KEPT_MIB, machine.memory_mib // 8)
    if driver != "process":
        return Size(machine.cpus, memory_mib)
    return Size(max(machine.cpus, vms), max(memory_mib, vms * _LEAST_MIB["process"]))


def runner_size(driver: str, vms: int, machine: Machine) -> Size:
    """Return the size of each runner of the default pool: an even share for VMs, next to nothing for processes."""
    least_mib = _LEAST_MIB[driver]
    if driver == "process":
        return Size(1, least_mib)
    offer, number = offer_of(driver, vms, machine), max(1, vms)
    return Size(max(1, offer.cpus // number), max(least_mib, offer.memory_mib // number))
