"""VMs without a host: what a driver must do, done in memory. The contract suite of the port is tried on it first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.ports.vms import (
    Abilities,
    Ending,
    Inventory,
    NameTaken,
    NoSlot,
    NoSpace,
    NotThere,
    Power,
    PullProgress,
    Refused,
    RunEnd,
    SeenImage,
    SeenVm,
    StillRunning,
    VmsError,
    VmShape,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.ports.clock import Clock

_ABILITIES = Abilities(
    runtime="memory",
    guest_os=frozenset({"linux"}),
    isolated=False,
    vms_max=2,
    pulls=True,
    shared_goldens=False,
    sees_guest_disk=True,
)


@dataclass
class _Vm:
    shape: VmShape = field(default_factory=VmShape)
    running: bool = False
    end: RunEnd | None = None


@dataclass
class Disk:
    """What a host keeps, whichever driver object looks at it: VMs outlive their agent."""

    registry: dict[str, int]
    """The images that can be pulled, and their sizes."""
    free_bytes: int
    vms: dict[str, _Vm] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)


class MemoryVms:
    """The VMs of a host that is a ``Disk``."""

    def __init__(self, disk: Disk, folder: Path, clock: Clock) -> None:
        self._disk, self._folder, self._clock = disk, folder, clock

    @property
    def abilities(self) -> Abilities:
        return _ABILITIES

    async def inventory(self) -> Inventory:
        images = (
            SeenImage(ref=ref, size_bytes=size) for ref, size in sorted(self._disk.images.items())
        )
        return Inventory(vms=tuple(map(self._seen, sorted(self._disk.vms))), images=tuple(images))

    def running(self) -> frozenset[str] | None:
        return None  # a list costs no more

    async def observe(self, name: str) -> SeenVm | None:
        return self._seen(name) if name in self._disk.vms else None

    async def image_bytes(self, image: str) -> int | None:
        return self._disk.registry.get(image)

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        if image in self._disk.images:
            return
        size = self._disk.registry.get(image)
        if size is None:
            raise _error(Refused, image, "the registry has no such image")
        if size > self._disk.free_bytes:
            raise _error(NoSpace, image, "the disk is full")
        progress(PullProgress(done_bytes=size, total_bytes=size))
        self._disk.free_bytes -= size
        self._disk.images[image] = size

    async def make_golden(self, image: str, golden: str) -> None:
        if image not in self._disk.images:
            raise _error(NotThere, image, "it was not pulled")
        self._new(golden)

    async def drop_image(self, image: str) -> None:
        if image not in self._disk.images:
            raise _error(NotThere, image, "it is not there")
        self._disk.free_bytes += self._disk.images.pop(image)

    async def clone(self, golden: str, name: str) -> None:
        self._found(golden)
        self._new(name)

    async def shape(self, name: str, shape: VmShape) -> None:
        self._found(name).shape = shape

    async def run(self, name: str) -> None:
        vm = self._found(name)
        if vm.running:
            raise _error(StillRunning, name, "it runs already")
        if sum(other.running for other in self._disk.vms.values()) >= 2:
            raise _error(NoSlot, name, "two VMs run already")
        vm.running, vm.end = True, None
        self.log_file(name).parent.mkdir(parents=True, exist_ok=True)
        self.log_file(name).touch(mode=0o600)

    async def stop(self, name: str, *, grace_s: float) -> None:
        del grace_s
        if self._found(name).running:
            self._ended(name, Ending.STOPPED)

    async def delete(self, name: str) -> None:
        if self._found(name).running:
            raise _error(StillRunning, name, "it runs")
        del self._disk.vms[name]
        self.log_file(name).unlink(missing_ok=True)

    async def guest_disk_used(self, name: str) -> float | None:
        return 0.5 if self._found(name).running else None

    def mailbox(self, name: str) -> Path:
        return self._folder / name / "mailbox"

    def log_file(self, name: str) -> Path:
        return self._folder / name / "log"

    def halt(self, name: str) -> None:
        """Play the guest that powers itself off."""
        self._ended(name, Ending.HALTED)

    def _ended(self, name: str, how: Ending) -> None:
        vm = self._disk.vms[name]
        vm.running, vm.end = False, RunEnd(how=how, at=self._clock.now())

    def _found(self, name: str) -> _Vm:
        if name not in self._disk.vms:
            raise _error(NotThere, name, "it is not there")
        return self._disk.vms[name]

    def _new(self, name: str) -> None:
        if name in self._disk.vms:
            raise _error(NameTaken, name, "there is one of that name")
        self._disk.vms[name] = _Vm()

    def _seen(self, name: str) -> SeenVm:
        vm = self._disk.vms[name]
        power = Power.RUNNING if vm.running else Power.STOPPED
        return SeenVm(name=name, power=power, end=vm.end)


def _error(kind: type[VmsError], name: str, why: str) -> VmsError:
    return kind(f"Nothing was done to {name}", why=why, fix="See what the error's kind says")
