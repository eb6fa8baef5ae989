"""
VMs of QEMU: a golden per image that nobody writes to, an overlay per VM, and one detached keeper beside each guest.

Goldens are checked copies of image folders on this host; nothing is pulled. The folder of the images is the operator's
and is never written to. What a guest can reach is said by ``Network``; only with ``open`` is it not isolated.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.adapters import detached
from remuda.adapters.commands import command
from remuda.adapters.qemu import channel, plan, vm_folder
from remuda.adapters.qemu.accel import Hypervisor, hypervisor
from remuda.adapters.qemu.images import (
    DISK,
    INITRD,
    KERNEL,
    Image,
    copy_image,
    no_space_or,
    read_image,
)
from remuda.adapters.qemu.machine import Machine, Network, arguments
from remuda.adapters.qemu.vm_folder import OVERLAY, SNAPSHOT, SNAPSHOT_OF, SnapshotOf, VmFile
from remuda.ports.vms import (
    Abilities,
    Inventory,
    NoSlot,
    NotThere,
    PullProgress,
    Refused,
    SeenVm,
    StillRunning,
    TimedOut,
    VmsError,
    VmShape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from remuda.agent.settings import Deadlines
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

LOOK_S: Final = 0.05
QUIT_S: Final = 5.0
"""How long QEMU may take to end once it was told to; then it is killed."""
GIVE_UP_S: Final = 5.0
"""How long a copy may take to notice that it is not wanted any more."""
_KEEPER: Final = "remuda.adapters.qemu.relay"
_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuSettings:
    """What the driver is told."""

    folder: Path
    """Where goldens, VMs, mailboxes and logs are."""
    images: Path
    """The image folders of this host."""
    deadlines: Deadlines
    accel: str = "auto"
    """``kvm``, ``tcg``, or ``auto``: KVM if it truly works."""
    network: Network = Network.RESTRICTED
    vms_max: int | None = None
    program: str = "qemu-system-x86_64"
    image_tool: str = "qemu-img"
    kvm: Path = Path("/dev/kvm")


class QemuVms:
    """The QEMU guests of this host. Fills the port ``Vms``."""

    def __init__(self, settings: QemuSettings, *, clock: Clock, ids: Ids) -> None:
        self._settings, self._clock, self._ids = settings, clock, ids
        self._folders = vm_folder.VmFolders(settings.folder.absolute())
        self._hypervisor: Hypervisor | None = None
        self._probing = asyncio.Lock()
        self._starting = asyncio.Lock()

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            runtime="qemu",
            guest_os=frozenset({"linux"}),
            isolated=self._settings.network is not Network.OPEN,
            vms_max=self._settings.vms_max,
            pulls=False,
            shared_goldens=True,
            sees_guest_disk=True,
        )

    async def inventory(self) -> Inventory:
        with _disk("The VMs of this host were not listed"):
            folders = [self._folders.of(name) for name in self._folders.names()]
            return Inventory(vms=tuple(vm_folder.seen(folder) for folder in folders))

    def running(self) -> frozenset[str] | None:
        return None  # a list costs no more

    async def observe(self, name: str) -> SeenVm | None:
        folder = self._folders.of(name)
        with _disk(f"{name} was not looked at"):
            return vm_folder.seen(folder) if folder.is_dir() else None

    # --- images ---

    async def image_bytes(self, image: str) -> int | None:
        found = read_image(self._settings.images, image)
        return None if found is None else found.size_bytes

    async def pull(self, image: str, progress: Callable[[PullProgress], None]) -> None:
        found = read_image(self._settings.images, image)
        if found is None:
            raise Refused(
                f"The image {image} is not on this host",
                why=f"{self._settings.images} has no folder of that name with an image.json",
                fix="Put it there; QEMU's images are not pulled",
            )
        progress(PullProgress(done_bytes=found.size_bytes, total_bytes=found.size_bytes))

    async def make_golden(self, image: str, golden: str) -> None:
        loop = asyncio.get_running_loop()
        limit_s = self._settings.deadlines.golden
        deadline, given_up = loop.time() + limit_s, threading.Event()

        def go_on() -> bool:
            return not given_up.is_set() and loop.time() < deadline

        with _disk(f"{golden} was not made"), self._folders.new(golden) as folder:
            copying = loop.run_in_executor(
                None, _copied, self._settings.images, image, folder, go_on
            )
            try:
                await asyncio.wait([copying], timeout=limit_s + GIVE_UP_S)
            finally:
                given_up.set()
                # It must not write into a folder that is being removed; a disk that hangs must not hang us.
                await asyncio.wait([copying], timeout=GIVE_UP_S)
            made = copying.result() if copying.done() else _hung(golden)
            if made.snapshot:
                await self._make_snapshot(folder, made)

    async def drop_image(self, image: str) -> None:
        raise NotThere(
            f"The image {image} was not deleted",
            why="QEMU's images are not pulled, so no cache holds it",
            fix="Delete the golden; the image's own folder is its operator's",
        )

    # --- one VM ---

    async def clone(self, golden: str, name: str) -> None:
        base = self._folders.found(golden) / DISK
        with _disk(f"{name} was not made"), self._folders.new(name) as folder:
            if not base.exists():
                raise NotThere(f"{name} was not made", why=f"{golden} is no golden", fix="Make it")
            await self._overlay(base, folder / OVERLAY, self._settings.deadlines.clone)
            vm_folder.write_vm(folder, self._identity(golden))

    async def shape(self, name: str, shape: VmShape) -> None:
        folder, vm = self._vm(name)
        with _disk(f"{name} was not given its size"):
            sized = msgspec.structs.replace(vm, cpus=shape.cpus, memory_mib=shape.memory_mib)
            vm_folder.write_vm(folder, sized)

    async def run(self, name: str) -> None:
        _, vm = self._vm(name)
        host = await self._host(self._folders.of(vm.golden))
        async with self._starting:  # two at once would both see the last free slot
            self._free_slot(name)
            folder, vm = self._vm(name)
            with _disk(f"{name} was not started"):
                self._settle_in(folder, vm, host)
                self._folders.mailbox(name).mkdir(mode=0o700, parents=True, exist_ok=True)
                await detached.start(
                    _keeper(folder),
                    folder=vm_folder.run_folder(folder),
                    log=self.log_file(name),
                    env={"PATH": _PATH},
                )
        await self._until_up(name, folder)

    async def stop(self, name: str, *, grace_s: float) -> None:
        folder = self._folders.found(name)
        if not vm_folder.runs(folder):
            return
        # On a disk that is full its keeper may not be told: then it is killed with its guest.
        if _marked(folder / plan.STOP):
            if grace_s > 0 and await self._until_over(folder, grace_s):
                return
            if _marked(folder / plan.QUIT) and await self._until_over(folder, QUIT_S):
                return
        if not await detached.kill(
            vm_folder.run_folder(folder), within_s=self._settings.deadlines.stop
        ):
            raise TimedOut(
                f"{name} was not stopped",
                why="its processes were killed and are still there",
                fix="Look for processes of QEMU that hang in the kernel; restart the host",
                op="stop",
            )

    async def delete(self, name: str) -> None:
        folder = self._folders.found(name)
        if vm_folder.runs(folder):
            raise StillRunning(f"{name} was not deleted", why="it runs", fix="Stop it first")
        with _disk(f"{name} was not deleted"):
            await asyncio.to_thread(self._folders.remove, name)

    async def guest_disk_used(self, name: str) -> float | None:
        folder = self._folders.found(name)
        if not vm_folder.runs(folder):
            return None
        with contextlib.suppress(OSError, ValueError):
            return int((folder / plan.DISK).read_text()) / 100
        return None

    # --- places ---

    def mailbox(self, name: str) -> Path:
        return self._folders.mailbox(name)

    def log_file(self, name: str) -> Path:
        return self._folders.of(name) / "log"

    # --- how ---

    async def _host(self, golden: Path) -> Hypervisor:
        async with self._probing:
            if self._hypervisor is None:
                told = self._settings
                self._hypervisor = await hypervisor(
                    told.program, told.accel, told.kvm, golden / KERNEL
                )
            return self._hypervisor

    def _vm(self, name: str) -> tuple[Path, VmFile]:
        folder = self._folders.found(name)
        with _disk(f"{name} was not read"):
            vm = vm_folder.read_vm(folder)
        if vm is None:
            raise Refused(f"Nothing was done to {name}", why="it is a golden", fix="Clone it")
        return folder, vm

    def _identity(self, golden: str) -> VmFile:
        """Make a VM's own: none of it is in its image, and no two have the same."""
        mac = bytes([0x02, *self._ids.secret(5)])  # locally administered
        return VmFile(
            golden=golden,
            uuid=self._ids.uid(),
            machine_id=self._ids.secret(16).hex(),
            mac=mac.hex(":"),
        )

    async def _overlay(self, base: Path, overlay: Path, deadline_s: float) -> None:
        argv = [self._settings.image_tool, "create", "-q", "-f", "qcow2", "-F", "qcow2"]
        made = await command(
            [*argv, "-b", str(base), str(overlay)],
            op="clone",
            deadline_s=deadline_s,
        )
        if made.code:
            full = "No space left" in made.last_words()
            raise no_space_or(
                OSError(28 if full else 5, made.last_words()), f"{overlay.parent.name} was not made"
            )

    def _free_slot(self, name: str) -> None:
        folder = self._folders.found(name)
        if vm_folder.runs(folder):
            raise StillRunning(f"{name} was not started", why="it runs already", fix="Leave it be")
        most = self._settings.vms_max
        if most is None:
            return
        running = sum(vm_folder.runs(self._folders.of(n)) for n in self._folders.names())
        if running >= most:
            raise NoSlot(
                f"{name} was not started",
                why=f"{running} VMs run, and this host is told to run {most}",
                fix="Wait until one has ended",
            )

    def _settle_in(self, folder: Path, vm: VmFile, host: Hypervisor) -> None:
        """Write down what the keeper is to start."""
        golden = self._folders.found(vm.golden)
        image = vm_folder.read_golden(golden)
        if image is None:
            raise Refused(
                f"{folder.name} was not started", why="its golden is none", fix="Clone it"
            )
        machine = self._machine(folder.name, vm, golden, image, host)
        machine = replace(machine, overlay=folder / OVERLAY)
        snapshot = vm_folder.read_snapshot(golden)
        from_snapshot = snapshot is not None and snapshot == _same(machine, host)
        identity = channel.Identity(
            host_name=folder.name[:63].rstrip("-.").replace(".", "-"),
            machine_id=vm.machine_id,
            mac=vm.mac,
            seed=self._ids.secret(64).hex(),
        )
        for mark in plan.MARKS:
            (folder / mark).unlink(missing_ok=True)
        told = plan.Plan(
            argv=[
                self._settings.program,
                *arguments(replace(machine, from_snapshot=from_snapshot)),
            ],
            mailbox=str(self._folders.mailbox(folder.name)),
            identity=asdict(identity),
            incoming=str(golden / SNAPSHOT) if from_snapshot else "",
        )
        plan.write_plan(folder, told)

    def _machine(
        self, name: str, vm: VmFile, golden: Path, image: Image, host: Hypervisor
    ) -> Machine:
        return Machine(
            name=name,
            uuid=vm.uuid,
            mac=vm.mac,
            cpus=vm.cpus or image.cpus,
            memory_mib=vm.memory_mib or image.memory_mib,
            kernel=golden / KERNEL,
            initrd=golden / INITRD,
            append=image.append,
            base=golden / DISK,
            overlay=golden / OVERLAY,
            accel=host.accel,
            network=self._settings.network,
        )

    async def _until_up(self, name: str, folder: Path) -> None:
        deadline = self._clock.monotonic() + self._settings.deadlines.run
        run = vm_folder.run_folder(folder)
        while not (folder / plan.UP).exists():
            if not isinstance(detached.look(run), detached.Alive):
                end = vm_folder.seen(folder).end
                raise VmsError(
                    f"{name} ended as soon as it was started",
                    why=(end and end.why) or "it said nothing",
                    fix="Look at the VM's log",
                )
            if self._clock.monotonic() > deadline:
                await detached.kill(run, within_s=self._settings.deadlines.stop)
                raise TimedOut(
                    f"{name} did not start",
                    why="QEMU started no CPU in time, and was killed",
                    fix="Look at the VM's log and at the host's load",
                    op="run",
                )
            await self._clock.sleep(LOOK_S)

    async def _until_over(self, folder: Path, within_s: float) -> bool:
        deadline = self._clock.monotonic() + within_s
        while vm_folder.runs(folder):
            if self._clock.monotonic() > deadline:
                return False
            await self._clock.sleep(LOOK_S)
        return True

    async def _make_snapshot(self, golden: Path, image: Image) -> None:
        """Boot the golden until it asks who it is, keep that moment, and throw its overlay away."""
        host = await self._host(golden)
        deadline_s = self._settings.deadlines.golden
        overlay = golden / "snapshot-overlay.qcow2"
        await self._overlay(golden / DISK, overlay, deadline_s)
        machine = self._machine("remuda-snapshot", self._identity(""), golden, image, host)
        argv = arguments(replace(machine, overlay=overlay))
        made_of = _same(machine, host)
        told = plan.Plan(
            argv=[self._settings.program, *argv],
            snapshot=str(golden / SNAPSHOT),
            limit_s=deadline_s,
        )
        plan.write_plan(golden, told)
        said = await command(
            _keeper(golden), op="golden", deadline_s=deadline_s, env={"PATH": _PATH}
        )
        if not (golden / plan.MADE).exists():
            raise Refused(
                "No snapshot was made of the image",
                why=f"its guest did not get as far as asking who it is: {said.last_words()}",
                fix="Build the image without a snapshot, or see why its guest does not start",
            )
        (golden / SNAPSHOT_OF).write_bytes(msgspec.json.encode(made_of))
        for left in (overlay, golden / plan.PLAN, *(golden / mark for mark in plan.MARKS)):
            left.unlink(missing_ok=True)


def _copied(images: Path, ref: str, target: Path, go_on: Callable[[], bool]) -> Image:
    return copy_image(images, ref, target, go_on=go_on)


def _hung(golden: str) -> Image:
    raise TimedOut(
        f"{golden} was not made",
        why="a read or a write of the disk hangs",
        fix="Look at the disks that hold the images and the VMs",
        op="golden",
    )


def _same(machine: Machine, host: Hypervisor) -> SnapshotOf:
    """Say what a machine must have in common with another to go on from its snapshot."""
    return SnapshotOf(
        qemu=host.version,
        accel=machine.accel.value,
        network=machine.network.value,
        cpus=machine.cpus,
        memory_mib=machine.memory_mib,
    )


def _keeper(folder: Path) -> list[str]:
    return [sys.executable, "-I", "-m", _KEEPER, str(folder)]


def _marked(mark: Path) -> bool:
    """Tell a keeper something; False: the disk does not take even that."""
    try:
        mark.touch()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _disk(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise no_space_or(error, what) from None
