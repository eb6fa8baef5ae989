"""
What this host offers to the scheduler, whether a VM may start now, and how large a Pod's VM is. Pure.

The limit on VMs is one of the host, whoever started them: a VM that somebody else runs takes a slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.kube.names import VM
from remuda.kube.quantity import parse_quantity
from remuda.model.errors import BadInput
from remuda.ports.vms import VmShape

if TYPE_CHECKING:
    from remuda.kube.core import ResourceRequirements
    from remuda.ports.vms import Abilities

_MIB: Final = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOffer:
    """What a host is told to give to VMs. The rest is for the host itself."""

    cpus: int
    memory_mib: int
    vms: int
    pods: int
    """More than ``vms``: Pods that are not ours may be bound here too, and each takes one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """How many VMs there may be, and how many there are."""

    most: int
    ours: int
    """Running, and by our record."""
    foreign: int
    """Running, made by somebody else."""

    @property
    def offered(self) -> int:
        """How many of ours the host can hold. Never fewer than run already: nothing is taken from under a job."""
        return max(self.most - self.foreign, min(self.ours, self.most), 0)

    @property
    def free(self) -> int:
        return max(0, self.most - self.foreign - self.ours)


def slots(offer: HostOffer, abilities: Abilities, *, ours: int, foreign: int) -> Slots:
    """Return the slots of a host. Where the driver has no limit of its own, VMs of others take none of ours."""
    if abilities.vms_max is None:
        return Slots(most=offer.vms, ours=ours, foreign=0)
    return Slots(most=min(offer.vms, abilities.vms_max), ours=ours, foreign=foreign)


def capacity(offer: HostOffer, slots: Slots, disk_bytes: int | None) -> dict[str, str]:
    """Return what the Node has in all, as Kubernetes spells it."""
    return _resources(offer, slots.most, disk_bytes)


def allocatable(offer: HostOffer, slots: Slots, disk_bytes: int | None) -> dict[str, str]:
    """Return what Pods may take of it."""
    return _resources(offer, slots.offered, disk_bytes)


def _resources(offer: HostOffer, vms: int, disk_bytes: int | None) -> dict[str, str]:
    resources = {
        "cpu": str(offer.cpus),
        "memory": f"{offer.memory_mib}Mi",
        "pods": str(offer.pods),
        VM: str(vms),
    }
    if disk_bytes is not None:
        resources["ephemeral-storage"] = str(disk_bytes)
    return resources


def shape_of(resources: ResourceRequirements) -> VmShape:
    """Return the size of a Pod's VM: its limits, else its requests, rounded down; what is not said, the image says."""
    cpus = _amount(resources, "cpu", 1)
    memory_mib = _amount(resources, "memory", _MIB)
    return VmShape(cpus=cpus or None, memory_mib=memory_mib or None)


def _amount(resources: ResourceRequirements, name: str, unit: int) -> int:
    for amounts in (resources.limits, resources.requests):
        text = amounts.get(name)
        if text is None:
            continue
        try:
            amount = parse_quantity(text).amount
        except BadInput:
            continue  # the API server takes none such
        return max(0, amount.numerator // (amount.denominator * unit))
    return 0
